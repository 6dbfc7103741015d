"""Report on Sync-Switch runs: accuracy, time and speedup of every setting, as a table and four figures.

    python -m logs_tools.sync_switch_report DIR [--json FILE]

Reads every run below DIR: our own (acc.csv and loss.csv beside run.json) and the published folders with their job logs.
What is left out or corrected is named.
"""

import argparse
import json
import sys
from itertools import groupby
from pathlib import Path

from .. import config
from ..runtime import program, terminal
from ..runtime.files import expanded, write_atomically
from ..runtime.terminal import markdown, number, right
from .figures import save
from .sync_switch.figures import figures
from .sync_switch.groups import RunGroup, group
from .sync_switch.runs import find_runs

HEADINGS = ("n", "final accuracy", "best", "time s", "time ÷ BSP", "speedup", "with gap", "span s")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with 2 on bad usage."""
    parser = argparse.ArgumentParser(prog=program.name("sync_switch_report"), description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=expanded, metavar="DIR", help="folder that holds runs, at any depth")
    parser.add_argument("--json", type=expanded, metavar="FILE", help="also write everything that was read to FILE")
    parser.add_argument(
        "--out",
        type=expanded,
        metavar="FOLDER",
        default=Path("figures"),
        help="where the figures are written, as PNG and PDF (default: %(default)s)",
    )
    parser.add_argument("--no-figures", action="store_true", help="draw nothing")
    return parser.parse_args(arguments)


def report_text(groups: list[RunGroup]) -> str:
    """One table per setup, in Markdown."""
    texts = []
    for setup, members in groupby(groups, key=lambda each: each.setup):
        texts.append(f"{setup}\n{markdown(['setting', *map(right, HEADINGS)], map(_cells, members))}")
    return "\n".join(texts)


def _cells(each: RunGroup) -> list[str]:
    name = each.setting.label + (f", {each.diverged} diverged" if each.diverged else "")
    return [
        name,
        str(len(each.runs)),
        f"{each.accuracy.mean:.6f} ± {each.accuracy.deviation:.6f}",
        f"{each.best:.4f}",
        f"{each.time.mean:.1f} ± {each.time.deviation:.1f}",
        number(each.relative, ".4f"),
        number(each.speedup, ".2f"),
        number(each.speedup_with_gap, ".2f"),
        f"{each.span:.1f}",
    ]


def run(options: argparse.Namespace) -> int:
    """Read, print, draw; returns the exit code.

    Raises:
        OSError: something cannot be read or written.
    """
    if not options.dir.is_dir():
        terminal.print_error(f"{options.dir}: no such folder; expected one that holds runs")
        return 1
    findings = find_runs(options.dir)
    groups = group(findings.runs)
    if groups:
        print(report_text(groups))
    complaints = [*findings.remarks, *(f"left out {folder}: {why}" for folder, why in findings.skipped.items())]
    for line in complaints[: config.SKIPPED_SHOWN]:
        terminal.print_error(line)
    if len(complaints) > config.SKIPPED_SHOWN:
        terminal.print_error(f"… and {len(complaints) - config.SKIPPED_SHOWN} more; --json FILE lists all of them")
    if options.json:
        whole = {
            "dir": str(options.dir),
            "groups": [each.as_json() for each in groups],
            "remarks": findings.remarks,
            "left_out": findings.skipped,
        }
        write_atomically(options.json, json.dumps(whole, indent=2, allow_nan=False).encode() + b"\n")
    if not groups:
        terminal.print_error(f"no run in {options.dir}: expected folders with acc.csv and loss.csv")
        return 1
    if not options.no_figures:
        drawn = figures(groups)
        for name, figure in drawn.items():
            save(figure, options.out, name)
        without = "" if any(each.setting.policy for each in groups) else "; no runs with stragglers, no figures of them"
        print(f"figures: {len(drawn)} in {options.out}{without}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the tool: exit code 0 done, 1 nothing to do or failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.guarded(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
