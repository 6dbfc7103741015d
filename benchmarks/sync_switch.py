"""How accurate, and how fast, are shares of BSP?

    python benchmarks/sync_switch.py [--json FILE]

Eight simulated workers of clusters/sync-switch.yaml train LeNet on Fashion-MNIST with real
gradients in virtual time: BSP alone, ASP alone, and shares of BSP between, several seeds of each;
then the search for the smallest share that is within beta of BSP's accuracy, on the same runs.
Every finished run is kept in the folder: interrupted, the same command goes on where it was. The
target is that ASP is worse than BSP by 2 beta or diverges (else the search would show nothing), and
that the search finds a share below 100 %.
"""

import sys
from pathlib import Path

from harness import program
from harness.figures import write_figures

from esync import config
from esync.arguments import count
from esync.runtime.errors import ExpectedError
from esync.sync_switch.report import as_json, as_text
from esync.sync_switch.search import search
from esync.sync_switch.trials import Trials

CLUSTER = program.CLUSTERS / "sync-switch.yaml"
SHARES = (1.0, 0.0, 0.0625, 0.125, 0.25, 0.5)


def main() -> int:
    """Carry out runs and search, and print the results; return 1 if the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("sync-switch-shares"), help="folder (default: %(default)s)")
    parser.add_argument("--repeats", type=count, default=config.SEARCH_REPEATS, help="seeds (default: %(default)s)")
    parser.add_argument(
        "--settings", type=count, default=config.SEARCH_SETTINGS, help="that the search tries (default: %(default)s)"
    )
    parser.add_argument("--beta", type=float, default=config.SEARCH_BETA, help="(default: %(default)s)")
    options, flags = parser.parse_known_args()
    try:
        with program.resumable(options.out):
            for repeats in range(1, options.repeats):  # seed by seed: an interrupted run leaves what can be compared
                early = Trials(options.out, CLUSTER, flags, repeats)
                for share in SHARES:
                    early.measure(share)
            trials = Trials(options.out, CLUSTER, flags, options.repeats)
            measured = {share: trials.measure(share) for share in SHARES}
            spent = trials.core_seconds
            found = search(trials.measure, options.beta, options.settings)
    except ExpectedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    bsp, asp = measured[1.0], measured[0.0]
    print("| BSP share | accuracy | diverged | time s | time ÷ BSP | speedup |")
    print("|---:|---:|---:|---:|---:|---:|")
    for share, each in measured.items():
        relative = each.seconds / bsp.seconds
        print(
            f"| {100 * share:g} % | {each.accuracy:.4f} ± {each.deviation:.4f} | {each.diverged} of "
            f"{len(each.outcomes)} | {each.seconds:.1f} | {relative:.3f} | {1 / relative:.2f} |"
        )
    print(f"\n{as_text(found, spent)}")
    worse = bsp.accuracy - asp.accuracy >= 2 * options.beta
    met = worse and found.share < 1
    print(f"ASP is worse than BSP by {bsp.accuracy - asp.accuracy:.4f}; target: {program.verdict(met)}")
    figures = {
        "cluster": CLUSTER.name,
        "flags": flags,
        "repeats": options.repeats,
        "settings": options.settings,
        "core_hours": spent / 3600,
        "shares": [
            {
                "share": share,
                "accuracies": [outcome.accuracy for outcome in each.outcomes],
                "accuracy": each.accuracy,
                "deviation": each.deviation,
                "diverged": each.diverged,
                "seconds": each.seconds,
            }
            for share, each in measured.items()
        ],
        "search": as_json(found, spent),
        "met": met,
    }
    write_figures(options.json, figures)
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
