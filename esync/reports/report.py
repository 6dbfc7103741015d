"""Write `report.html`: one file that shows a run, or compares several; or the trace of a run.

    python -m esync.reports.report RUN [RUN …] [-o report.html]
    python -m esync.reports.report RUN --trace trace.json

A RUN is a folder of a run, a folder with runs in it, or a pattern. Runs that differ only in their
seeds form a group. The page is self-contained.
"""

import argparse
import sys
import time
from pathlib import Path

from ..runtime import program, terminal
from ..runtime.files import expanded, write_atomically
from ..runtime.output import printable
from .compare import add_runs, parse_runs
from .comparison import Comparison, compare
from .job_events import REPORT_FILE, events_of
from .report_page.build import build_report
from .report_page.page import report_html
from .trace import write_trace


def write_report(comparison: Comparison, path: Path) -> None:
    """Write the report of runs that have been compared.

    Args:
        comparison: the runs.
        path: the file to write.

    Raises:
        OSError: the file cannot be written.
    """
    events = {run.folder: events_of(run) for run in comparison.runs}
    created = time.strftime("on %d %B %Y at %H:%M")
    page = report_html(build_report(comparison, created, events))
    write_atomically(path, page.encode(errors="backslashreplace"))  # names of folders may be invalid UTF-8


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.reports.report"),
        description=f"Write {REPORT_FILE}: one file that shows a run, or compares several; or the trace of a run.",
    )
    add_runs(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=expanded,
        metavar="FILE",
        help=f"file to write (default: {REPORT_FILE}, or none with --trace)",
    )
    parser.add_argument(
        "--trace",
        type=expanded,
        metavar="FILE",
        help="write what the devices of the only RUN did, finished or not, to FILE as a trace for ui.perfetto.dev or "
        "chrome://tracing; compressed if its name ends with .gz",
    )
    options = parse_runs(parser, arguments)
    if options.out is None and options.trace is None:
        options.out = Path(REPORT_FILE)
    return options


def run(options: argparse.Namespace) -> int:
    """Write the report or the trace, print what it contains, and return the exit code."""
    comparison = compare(options.runs, options.target)
    terminal.print_problems(comparison.problems, "esync compare --json FILE")
    if options.trace is not None:
        _print_written(options.trace, f"{write_trace(comparison.runs, options.trace):,} events")
    if options.out is not None:
        write_report(comparison, options.out)
        runs, groups = len(comparison.runs), sum(len(section.groups) for section in comparison.sections)
        _print_written(options.out, f"{runs} run{'s' * (runs > 1)} in {groups} group{'s' * (groups > 1)}")
    return 0


def _print_written(path: Path, content: str) -> None:
    print(f"{printable(str(path))}: {content}, {path.stat().st_size / 1e3:,.0f} kB")


def main(arguments: list[str] | None = None) -> int:
    """Run the tool and return its exit code: 0 done, 1 failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.run_command(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
