"""What the runs of a benchmark are planned to cost and have cost, and how many a budget pays for."""

import argparse
from collections.abc import Mapping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options --budget and --list."""
    parser.add_argument(
        "--budget", type=_hours, metavar="CORE-HOURS", help="leave out the end of the list that costs more than this"
    )
    parser.add_argument("--list", action="store_true", help="name the runs, whether they are done, and their costs")


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of core-hours above 0")
    return hours


def within(planned: Mapping[str, float], spent: Mapping[str, float], hours: float | None) -> list[str]:
    """Return the beginning of the list of runs that costs no more than the budget.

    Args:
        planned: core-seconds that each run costs by estimate, by its name.
        spent: core-seconds of the finished ones, which count instead.
        hours: the budget in core-hours; None: there is none.
    """
    if hours is None:
        return list(planned)
    left = 3600.0 * hours
    kept: list[str] = []
    for name, seconds in planned.items():
        left -= spent.get(name, seconds)
        if left < 0:
            break
        kept.append(name)
    return kept


def listed(planned: Mapping[str, float], spent: Mapping[str, float], hours: float | None) -> str:
    """Return the runs as text: whether they are done, and seconds of one core planned and spent."""
    kept = within(planned, spent, hours)
    among_kept = set(kept)
    width = max(map(len, planned), default=0)
    lines = []
    for name, seconds in planned.items():
        state = "done" if name in spent else "–" if name in among_kept else "over budget"
        cost = f"{spent[name]:.0f} s" if name in spent else "–"
        lines.append(f"{state:11} {name:{width}} planned {seconds:7.0f} s   spent {cost:>7}")
    plan = sum(planned[name] for name in kept) / 3600
    paid = sum(spent.get(name, 0.0) for name in kept) / 3600
    return "\n".join([*lines, f"core-hours: planned {plan:.1f}, spent {paid:.1f}"])


def left_out(planned: Mapping[str, float], kept: list[str]) -> str:
    """Return a line that names the runs over the budget; "" if there are none."""
    over = list(planned)[len(kept) :]
    return f"over the budget, left out: {'; '.join(over)}" if over else ""
