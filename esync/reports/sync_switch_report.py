"""Report on Sync-Switch runs: a table of accuracy, time and speedup, and four figures.

    python -m logs_tools.sync_switch_report DIR [--json FILE]

This reads every run below DIR: our own (acc.csv and loss.csv beside run.json), and the published
folders with their job logs. It names what it leaves out or corrects. The time to an accuracy is
that of the first evaluation with it.
"""

import argparse
import math
import sys
from itertools import groupby
from pathlib import Path

from .. import config
from ..runtime import program, terminal
from ..runtime.files import expanded, write_json
from ..runtime.terminal import UNKNOWN, markdown, number, right
from .sync_switch.groups import RunGroup, group
from .sync_switch.runs import find_runs

HEADINGS = (
    "n",
    "final accuracy",
    "best",
    "time s",
    "time ÷ BSP",
    "speedup",
    "with gap",
    "span s",
    "target",
    "reached after s",
)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("sync_switch_report"),
        description="Report on Sync-Switch runs: a table of accuracy, time and speedup, and four figures.",
    )
    parser.add_argument("dir", type=expanded, metavar="DIR", help="folder that holds runs, at any depth")
    parser.add_argument("--json", type=expanded, metavar="FILE", help="also write everything that was read to FILE")
    aim = parser.add_mutually_exclusive_group()
    aim.add_argument("--target", type=_share, metavar="ACCURACY", help="take the time to this accuracy")
    aim.add_argument(
        "--beta",
        type=_share,
        default=config.SEARCH_BETA,
        help="without --target: take the time to BSP's final accuracy less beta (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=expanded,
        metavar="FOLDER",
        default=Path("figures"),
        help="where the figures are written, as PNG and PDF (default: %(default)s)",
    )
    parser.add_argument("--no-figures", action="store_true", help="draw nothing")
    return parser.parse_args(arguments)


def _share(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number from 0 to 1")
    return value


def report_text(groups: list[RunGroup]) -> str:
    """Return one table per setup, in Markdown."""
    texts = []
    for setup, members in groupby(groups, key=lambda group: group.setup):
        texts.append(f"{setup}\n{markdown(['setting', *map(right, HEADINGS)], map(_cells, members))}")
    return "\n".join(texts)


def _cells(group: RunGroup) -> list[str]:
    name = group.setting.label + (f", {group.diverged} diverged" if group.diverged else "")
    return [
        name,
        str(len(group.runs)),
        f"{group.accuracy.mean:.6f} ± {group.accuracy.deviation:.6f}",
        f"{group.best:.4f}",
        f"{group.time.mean:.1f} ± {group.time.deviation:.1f}",
        number(group.relative, ".4f"),
        number(group.speedup, ".2f"),
        number(group.speedup_with_gap, ".2f"),
        f"{group.span:.1f}",
        number(group.target, ".4f"),
        _time_to_target(group),
    ]


def _time_to_target(group: RunGroup) -> str:
    if group.to_target is None:
        return UNKNOWN
    reached, runs = len(group.times_to_target), len(group.runs)
    share = f" ({reached} of {runs})" if reached < runs else ""
    return f"{group.to_target.mean:.1f} ± {group.to_target.deviation:.1f}{share}"


def run(options: argparse.Namespace) -> int:
    """Read the runs, print the tables and draw the figures; return the exit code.

    Raises:
        OSError: a file cannot be read or written.
    """
    if not options.dir.is_dir():
        terminal.print_error(f"{options.dir}: no such folder; expected one that holds runs")
        return 1
    findings = find_runs(options.dir)
    groups = group(findings.runs, options.target, options.beta)
    if groups:
        print(report_text(groups))
    complaints = [*findings.remarks, *(f"left out {folder}: {reason}" for folder, reason in findings.skipped.items())]
    terminal.print_problems(complaints)
    if options.json:
        content = {
            "dir": str(options.dir),
            "groups": [group.as_json() for group in groups],
            "remarks": findings.remarks,
            "left_out": findings.skipped,
        }
        write_json(options.json, content, allow_nan=False)
    if not groups:
        terminal.print_error(f"no run in {options.dir}: expected folders with acc.csv and loss.csv")
        return 1
    if not options.no_figures:
        from .figures import save  # an extra brings Matplotlib
        from .sync_switch.figures import figures

        drawn = figures(groups)
        for name, figure in drawn.items():
            save(figure, options.out, name)
        stragglers = any(group.setting.policy for group in groups)
        without = "" if stragglers else "; no runs with stragglers, no figures of them"
        print(f"figures: {len(drawn)} in {options.out}{without}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the tool and return its exit code: 0 done, 1 nothing to do or failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.run_command(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
