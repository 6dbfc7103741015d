"""Which order of the segments, and which momentum after the switch, does Sync-Switch need?

    python benchmarks/switch_variants.py [--json FILE]

Eight simulated workers of clusters/switch-variants.yaml train a small network on Fashion-MNIST with
real gradients in virtual time. First BSP and ASP alone, and both orders of them with 25 and 50 % of
BSP; then what may become of the momentum at the switch (`--switch-momentum`) after `--share` of the
samples: at 25 % the switch comes together with the lower learning rate. The table has final
accuracies, times, and the time until the accuracy is BSP's − `--beta`. Every finished run is kept
in the folder: interrupted, the same command goes on where it was. The target is that ASP→BSP is
worse than BSP→ASP with the same share by beta or more, for both shares.
"""

from pathlib import Path

from harness import program
from harness.figures import write_figures

from esync import config
from esync.arguments import count
from esync.reports.sync_switch.groups import RunGroup, group
from esync.reports.sync_switch.runs import find_runs
from esync.reports.sync_switch_report import report_text
from esync.sync_switch.trials import Trials

CLUSTER = program.CLUSTERS / "switch-variants.yaml"
#: Order of the segments → the flags that make them, with global steps between two evaluations that
#: are as many samples in each segment.
ORDERS = {
    "10": ("--switch-order", "10", "--ckpt-frequency", "5", "40"),
    "01": ("--switch-order", "01", "--ckpt-frequency", "40", "5"),
}
MOMENTA = ("reset", "zero", "scale", "linear", "doubling")


def measure(out: Path, repeats: int, seed: int, share: float) -> float:
    """Make the runs that are missing; return the processor seconds of all of them."""
    settings = {  # order, and what becomes of the momentum → shares of BSP
        ("10", "keep"): sorted({1.0, 0.0, 0.25, 0.5, share}),
        ("01", "keep"): [0.25, 0.5],
        **{("10", momentum): [share] for momentum in MOMENTA},
    }
    spent = 0.0
    for number in range(1, repeats + 1):  # seed by seed: what an interrupted run leaves can be compared
        spent = 0.0
        for (order, momentum), shares in settings.items():
            flags = (*ORDERS[order], *(() if momentum == "keep" else ("--switch-momentum", momentum)))
            trials = Trials(out / f"{order}-{momentum}", CLUSTER, flags, number, seed=seed)
            for each in shares:
                trials.measure(each)
            spent += trials.core_seconds
    return spent


def by_share(groups: list[RunGroup], order: str) -> dict[float, RunGroup]:
    """Return the groups of that order of segments that keep their momentum, by their share of BSP."""
    return {each.setting.share: each for each in groups if each.setting.order == order and not each.setting.momentum}


def main() -> int:
    """Carry out the runs and print the table; return 1 if the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("switch-variants"), help="folder (default: %(default)s)")
    parser.add_argument("--seeds", type=count, default=5, help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--beta", type=float, default=config.SEARCH_BETA, help="(default: %(default)s)")
    parser.add_argument("--share", type=float, default=0.25, help="of BSP, for the momentum (default: %(default)s)")
    options = parser.parse_args()
    with program.resumable(options.out):
        spent = measure(options.out, options.seeds, options.first_seed, options.share)
    groups = group(find_runs(options.out).runs, beta=options.beta)
    print(report_text(groups))
    first, last = by_share(groups, "10"), by_share(groups, "01")
    met = all(first[share].accuracy.mean - each.accuracy.mean >= options.beta for share, each in last.items())
    print(f"{spent:.0f} core-seconds; target: {program.verdict(met)}")
    facts = {"command": program.command(), "cluster": CLUSTER.name, "seeds": options.seeds}
    settings = []
    for each in groups:
        told = each.as_json()
        for run in told["runs"]:
            del run["folder"]
        settings.append(told)
    write_figures(options.json, {**facts, "core_seconds": spent, "settings": settings, "met": met})
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
