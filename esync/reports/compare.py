"""Compare runs, given by their folders: differences, and whether they are significant.

    esync compare logs/lenet/esync@base-seed* logs/lenet/esync@overlap-seed*
    esync compare --log-dir logs --target 0.8 --figure curves.svg --csv runs.csv

A folder that is not a run's stands for all runs in it. Runs that differ only in their seeds form a
group, whose mean, standard deviation and interval are printed. `LABEL=FOLDER` names a group.
"""

import argparse
import csv
import io
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import config
from ..loggers import tensorboard
from ..runtime import program, terminal
from ..runtime.files import expanded, write_atomically
from ..runtime.output import printable
from .comparison import EVALUATION_COLUMNS, Comparison, compare, labelled
from .comparison_text import comparison_text
from .tensorboard_export import export

#: Endings of --figure.
PICTURES = (".png", ".svg", ".pdf")
#: Suffix of the name of --csv's second file.
EVALUATIONS = "-evaluations"


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.reports.compare"),
        description="Compare runs: what differs in their options, means with confidence intervals over seeds, and "
        "whether a difference is more than chance.",
    )
    add_runs(parser)
    parser.add_argument("--figure", type=expanded, metavar="FILE", help="draw the curves to FILE, a .png, .svg or .pdf")
    parser.add_argument(
        "--figures", type=expanded, metavar="DIR", help="draw the curves and the published figures of the groups to DIR"
    )
    parser.add_argument(
        "--csv",
        type=expanded,
        metavar="FILE",
        help=f"write a row for each run to FILE, and one for each evaluation to a file with {EVALUATIONS} in its name",
    )
    parser.add_argument("--json", type=expanded, metavar="FILE", help="write the whole comparison to FILE as JSON")
    parser.add_argument(
        "--tensorboard", type=expanded, metavar="DIR", help="write event files of these runs for TensorBoard below DIR"
    )
    options = parse_runs(parser, arguments)
    if options.figure is not None and options.figure.suffix.lower() not in PICTURES:
        parser.error(f"--figure {options.figure}: expected a name that ends in {', '.join(PICTURES)}")
    return options


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the runs to compare, and the target of their metric."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="folder of a run, for instance logs/lenet/esync or logs/lenet/esync@NAME, a pattern of such folders, or a "
        "folder with runs in it; LABEL=RUN names its group",
    )
    parser.add_argument(
        *("-ld", "--log-dir"),
        type=expanded,
        metavar="DIR",
        help="folder of all logs, as for esync launch, below which each RUN is (default: the working directory); "
        "without RUN, all runs in it",
    )
    parser.add_argument(
        "--target",
        type=_finite,
        metavar="VALUE",
        help=f"value of the metric for the time to target (default: {config.TARGET_ACCURACY} for test accuracy, the "
        "runs' own target for another metric)",
    )


def parse_runs(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line, with the folders of the runs below that of all logs."""
    options = parser.parse_args(arguments)
    if options.log_dir is not None:
        labels = [labelled(text) for text in options.runs] or [("", ".")]
        folders = [(label, options.log_dir / expanded(pattern)) for label, pattern in labels]
        options.runs = [f"{label}={folder}" if label else str(folder) for label, folder in folders]
    if not options.runs:
        parser.error("which runs? Give RUN, or --log-dir DIR for all runs in DIR")
    return options


def _finite(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text}: expected a finite number")


def run(options: argparse.Namespace) -> int:
    """Compare the runs, and return the exit code.

    Raises:
        RunError: a folder holds no run.
        OSError: a result cannot be written.
    """
    if options.tensorboard is not None:
        tensorboard.require()
    comparison = compare(options.runs, options.target)
    terminal.print_problems(comparison.problems)
    print(comparison_text(comparison, terminal.output_width()))
    for path in write_results(comparison, options):
        print(f"written: {printable(str(path))}")
    return 0


def write_results(comparison: Comparison, options: argparse.Namespace) -> list[Path]:
    """Write what the options ask for, and return the files.

    Raises:
        OSError: a file cannot be written.
    """
    written: list[Path] = []
    if options.csv is not None:
        second = options.csv.with_name(f"{options.csv.stem}{EVALUATIONS}{options.csv.suffix}")
        texts = table(comparison.rows()), table(comparison.evaluation_rows(), EVALUATION_COLUMNS)
        for path, text in zip((options.csv, second), texts, strict=True):
            write_atomically(path, text.encode(errors="surrogateescape"))  # names of folders may be invalid UTF-8
            written.append(path)
    if options.json is not None:
        comparison.write_json(options.json)
        written.append(options.json)
    if options.figure is not None or options.figures is not None:
        written += _draw(comparison, options.figure, options.figures)
    if options.tensorboard is not None:
        written += export(comparison.runs, options.tensorboard)
    return written


def _draw(comparison: Comparison, figure: Path | None, folder: Path | None) -> list[Path]:
    from . import comparison_figures, figures  # they need Matplotlib, an extra

    written = []
    if figure is not None:
        drawn = comparison_figures.curves(comparison)
        if drawn is None:
            terminal.print_error(f"{figure} has not been drawn: nothing was evaluated in these runs")
        else:
            figures.save_as(drawn, figure)
            written.append(figure)
    if folder is not None:
        for name, draw in comparison_figures.all_drawings(comparison).items():
            written += figures.save(draw(), folder, name)
    return written


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return rows as CSV, with these columns followed by all others of the rows; unknown values are empty."""
    columns = list(dict.fromkeys([*columns, *(column for row in rows for column in row)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Run the tool and return its exit code: 0 done, 1 failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.run_command(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
