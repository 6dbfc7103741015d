"""How often does the search for a share of BSP succeed, and what does it cost, by its repeats?

    python benchmarks/search_cost.py DIR [--json FILE]

DIR holds the published measurements of Sync-Switch (the folder data of its repository): five runs
of CIFAR-100 each with BSP alone, and with 50, 25, 12.5 and 6.25 % of BSP. The search (the same that
`python -m esync.sync_switch search` runs) is carried out on every choice of R of the five runs of
each share, without repetition; with R of the five BSP runs for its target, or with the mean of all
five, which a job that recurs knows already. It succeeds where it settles on the share on which it
settles with all runs. The cost is that of the trials, in runs of BSP. Shares that the search would
go on to after an unlucky rejection were not published: it ends there, settling on a larger share.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import write_figures

from esync import config
from esync.reports.sync_switch.runs import SyncSwitchRun, find_runs
from esync.runtime.errors import ExpectedError
from esync.runtime.terminal import markdown, number, right
from esync.sync_switch.search import Found, Measured, TrialOutcome, search

SETUP = "CIFAR-100, ResNet-50, 8 workers"
#: Shares of BSP that the search tries where it accepts all but the last.
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)


class UnpublishedError(Exception):
    """Raised when a search goes on to a share of which there are no runs."""


@dataclass(frozen=True)
class Odds:
    """What searches come to, over all choices of runs.

    Attributes:
        repeats: runs of each share that is tried.
        bsp_repeats: runs of BSP; 0: its accuracy is known.
        settled: share that a search settles on → part of the searches; None stands for those that
            go on to a share of which there are no runs.
        cost: mean time of the trials, in runs of BSP, of the searches that settle on a share.
        break_even: runs of the chosen share after which that cost is earned; None: never.
    """

    repeats: int
    bsp_repeats: int
    settled: Mapping[float | None, float]
    cost: float | None
    break_even: float | None


def searched(measured: Mapping[float, Measured], beta: float, settings: int, target: float | None) -> Found:
    """Run a search on runs that are there already.

    Raises:
        UnpublishedError: it goes on to another share.
    """

    def measure(share: float) -> Measured:
        if share not in measured:
            raise UnpublishedError
        return measured[share]

    return search(measure, beta, settings, target)


def choices(runs: Mapping[float, Sequence[TrialOutcome]], repeats: int) -> Iterator[dict[float, Measured]]:
    """Yield every choice of that many runs of each share."""
    drawn = [[Measured(share, each) for each in combinations(runs[share], repeats)] for share in runs]
    for chosen in product(*drawn):
        yield {each.share: each for each in chosen}


def odds(runs: Mapping[float, Sequence[TrialOutcome]], repeats: int, known: bool, beta: float, settings: int) -> Odds:
    """Return what the searches with that many repeats come to.

    Args:
        runs: share of BSP → its runs.
        repeats: runs of each share.
        known: whether BSP's accuracy is known, from all its runs; else it is measured, too.
        beta: accuracy that may be lost.
        settings: number of shares tried.
    """
    bsp = Measured(1.0, tuple(runs[1.0]))
    candidates = {share: each for share, each in runs.items() if not (known and share == 1.0)}
    settled: Counter[float | None] = Counter()
    costs = []
    for measured in choices(candidates, repeats):
        try:
            found = searched(measured, beta, settings, bsp.accuracy if known else None)
        except UnpublishedError:
            settled[None] += 1
            continue
        settled[found.share] += 1
        trials = [*found.tried, *([found.bsp] if found.bsp else [])]
        costs.append(sum(each.spent for each in trials) / bsp.seconds)
    total = settled.total()
    whole = searched({share: Measured(share, tuple(each)) for share, each in runs.items()}, beta, settings, None)
    cost = sum(costs) / len(costs) if costs else None
    saved = 1 - 1 / whole.speedup if whole.speedup else 0.0
    return Odds(
        repeats,
        0 if known else repeats,
        {share: count / total for share, count in settled.items()},
        cost,
        cost / saved if cost is not None and saved > 0 else None,
    )


def published_runs(folder: Path) -> dict[float, list[TrialOutcome]]:
    """Return the published runs of each share of BSP.

    Raises:
        ExpectedError: some are missing.
    """
    runs: list[SyncSwitchRun] = find_runs(folder).runs if folder.is_dir() else []
    of_share: dict[float, list[TrialOutcome]] = {share: [] for share in SHARES}
    for run in runs:
        if run.setup == SETUP and run.setting.share in of_share:
            of_share[run.setting.share].append(TrialOutcome(run.accuracy, run.time, run.diverged))
    if missing := [f"{100 * share:g} %" for share, found in of_share.items() if not found]:
        raise ExpectedError(
            f"{folder}: no runs of {SETUP}, with {', '.join(missing)} of BSP; give the folder data of the published "
            "repository, in which cifar100_res50 is"
        )
    return of_share


def _row(each: Odds, truth: float) -> list[str]:
    below = sum(part for share, part in each.settled.items() if share is not None and share < truth)
    above = sum(part for share, part in each.settled.items() if share is None or share > truth)
    return [
        str(each.bsp_repeats) if each.bsp_repeats else "known",
        str(each.repeats),
        f"{each.settled.get(truth, 0.0):.1%}",
        f"{below:.1%}",
        f"{above:.1%}",
        number(each.cost, ".2f"),
        number(each.break_even, ".0f"),
    ]


def as_json(each: Odds) -> dict[str, Any]:
    """Return the odds for --json."""
    settled = {"unpublished" if share is None else str(share): part for share, part in each.settled.items()}
    return {
        "bsp_repeats": each.bsp_repeats,
        "repeats": each.repeats,
        "settled": settled,
        "cost_in_bsp_runs": each.cost,
        "break_even_recurrences": each.break_even,
    }


def main() -> int:
    """Carry out the searches, and print the table."""
    parser: argparse.ArgumentParser = program.parser(__doc__)
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder of the published measurements")
    parser.add_argument("--beta", type=float, default=config.SEARCH_BETA, help="(default: %(default)s)")
    parser.add_argument("--settings", type=int, default=config.SEARCH_SETTINGS, help="(default: %(default)s)")
    options = parser.parse_args()
    runs = published_runs(options.dir)
    whole = searched(
        {share: Measured(share, tuple(each)) for share, each in runs.items()}, options.beta, options.settings, None
    )
    most = min(map(len, runs.values()))
    table = [
        odds(runs, repeats, known, options.beta, options.settings)
        for known in (True, False)
        for repeats in range(1, most + 1)
    ]
    headings = (
        "BSP runs",
        "runs per share",
        "success",
        "smaller share",
        "larger share",
        "cost, BSP runs",
        "pays after",
    )
    print(markdown([*map(right, headings)], [_row(each, whole.share) for each in table]))
    print(f"success: {100 * whole.share:g} % of BSP, as with all runs; beta {options.beta:g}")
    facts = {"command": program.command(), "setup": SETUP, "beta": options.beta, "share": whole.share}
    write_figures(options.json, {**facts, "searches": [as_json(each) for each in table]})
    return 0


if __name__ == "__main__":
    program.run(main)
