"""Draw the five figures and the speedup table of a network's runs.

    python logs_tools/plot.py --log-dir logs -n resnet18-v1

This loads every run below {log_dir}/{network}, from its summary or else from its rounds. It writes
accuracy over time (i.i.d. and non-i.i.d.), throughput, traffic and computing time ratio as PNG and
PDF, and speedup.txt and speedup.json, to {log_dir}/{network}/figures. Runs with different metrics are
drawn and compared separately.

Curves show every evaluation as it was logged. With --published-smoothing the accuracy is also drawn
with the filter of the published implementation (see `esync.reports.published_smoothing`), as
accuracy-iid-smoothed and accuracy-non-iid-smoothed, and the table also has the times of those curves.
With --published-results the accuracy figures also show the results of the ESync paper.
"""

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import track

from .. import config
from ..algorithms.registry import FIGURES, stem_of
from ..runtime import program, run_names, terminal
from ..runtime.files import expanded, write_atomically, write_json
from .discovery import SPEEDUP_FILE, others_to_choose
from .grouping import compare_singly
from .metrics_table import RunFigures
from .modes import BASELINE_LABEL, STANDALONE
from .published_results import ACCURACY, END, TABLE_1, PublishedRun, published_runs
from .published_smoothing import can_be_smoothed, smoothed
from .runs import load_network
from .speedups import as_json, best_alone
from .summarize import add_logs
from .tables import runs_text, smoothed_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("plot"),
        description="Draw the five figures and the speedup table of a network's runs.",
    )
    add_logs(parser)
    parser.add_argument(
        "--out", type=expanded, metavar="DIR", help="where to write (default: {log_dir}/{network}/figures)"
    )
    parser.add_argument(
        "--target",
        type=float,
        help="value of the metric for the speedup, for instance a test accuracy from 0 to 1 "
        f"(default: {config.TARGET_ACCURACY} for test accuracy, the runs' own target for another metric)",
    )
    parser.add_argument(
        "--published-smoothing",
        action="store_true",
        help="also draw and tabulate the accuracy smoothed as in the published figures: the mean of 10 points, which "
        "are 5 rounds apart (data by class: 30 points, 10 rounds apart), beginning at 0.1",
    )
    parser.add_argument(
        "--published-results",
        action="store_true",
        help="mark in the accuracy figures what was read off the ESync paper's: the time to "
        f"{ACCURACY:g} and the accuracy after {END / 60:g} minutes",
    )
    parser.add_argument(
        "--json", type=expanded, metavar="FILE", help="also write what was read, drawn and left out to FILE"
    )
    options = parser.parse_args(arguments)
    if options.target is not None and not math.isfinite(options.target):
        parser.error(f"--target {options.target}: expected a finite number")
    if options.published_results and not published_runs(options.network):
        networks = ", ".join(TABLE_1)
        parser.error(f"--published-results: the paper has none for {options.network}; it has some for {networks}")
    return options


def run(options: argparse.Namespace) -> int:
    """Draw the figures for which there are data, and return the exit code.

    Raises:
        OSError: a result cannot be written.
    """
    from . import figures  # an extra brings Matplotlib

    network_folder = options.log_dir / options.network
    loaded, problems = load_network(network_folder)
    terminal.print_problems(problems)
    if not loaded:
        terminal.print_error(
            f"nothing to draw: no run in {network_folder}" + others_to_choose(options.log_dir, options.network)
        )
        return 1
    sections = compare_singly(options.network, loaded, options.target)
    runs = [group.figures for section in sections for group in section.groups]
    if ambiguous := _target_problem(options.target, runs):
        terminal.print_error(ambiguous)
        return 2
    out = options.out or network_folder / FIGURES
    published = published_runs(options.network) if options.published_results else {}
    drawings = drawings_of(options.network, runs, published)
    filtered = [smoothed(run) for run in runs] if options.published_smoothing else []
    if filtered:
        drawings |= _accuracy_drawings(options.network, filtered, published, as_published=True)
    drawn: list[Path] = []
    shown = track(
        drawings.items(), "drawing", console=terminal.STATUS, disable=not terminal.STATUS.is_terminal, transient=True
    )
    for name, draw in shown:
        drawn += figures.save(draw(), out, name)
    text = runs_text(sections)
    if filtered:
        text += f"\n{smoothed_text([run for run in filtered if can_be_smoothed(run)])}"
    comparison = {
        "network": options.network,
        "target": targets.pop() if len(targets := {run.target for run in runs}) == 1 else None,
        "baseline": BASELINE_LABEL,
        "runs": {key: as_json(run, runs) for key, run in zip(_keys(runs), runs, strict=True)},
    }
    write_atomically(out / "speedup.txt", text.encode())
    write_json(out / SPEEDUP_FILE, comparison, allow_nan=False)
    if options.json:
        content = comparison | {"figures": [str(path) for path in drawn], "problems": problems}
        write_json(options.json, content, allow_nan=False)
    print(text)
    print(f"{', '.join(drawings) or 'no figure'}, speedup.txt and {SPEEDUP_FILE} in {out}")
    return 0


def _keys(runs: list[RunFigures]) -> list[str]:
    """Return a unique key for each run: its summary's stem, with its folder if necessary."""
    keys: list[str] = []
    for run in runs:
        stem = run.mode.summary
        keys.append(f"{stem} ({run.mode.folder})" if stem in keys else stem)
    return keys


def _target_problem(target: float | None, runs: list[RunFigures]) -> str | None:
    """Return why a target is not valid for these runs; None if it is."""
    if target is None:
        return None
    metrics = {run.metric: run.mode.label for run in runs if run.times}
    if len(metrics) > 1:
        names = ", ".join(f"{metric.label} ({label})" for metric, label in metrics.items())
        return f"--target {target:g}: for which metric? The runs have several: {names}; leave --target out"
    if all(metric.is_accuracy for metric in metrics) and not 0 < target <= 1:
        return f"--target {target:g}: expected an accuracy above 0 and up to 1"
    return None


def drawings_of(
    network: str, runs: list[RunFigures], published: Mapping[str, PublishedRun]
) -> "dict[str, Callable[[], Figure]]":
    """Return, by file name, functions that draw the figures for which there are data."""
    from . import figures

    drawings = _accuracy_drawings(network, runs, published)
    if all(run.mode.name == STANDALONE for run in runs):
        return drawings
    if any(run.throughput is not None for run in runs):
        drawings["throughput"] = partial(figures.throughput, network, runs)
    if any(run.bytes_sent is not None for run in runs):
        drawings["traffic"] = partial(figures.traffic, network, runs)
    drawings["computing-time-ratio"] = partial(figures.computing_ratio, network, runs)
    return drawings


def _accuracy_drawings(
    network: str, runs: list[RunFigures], published: Mapping[str, PublishedRun], as_published: bool = False
) -> "dict[str, Callable[[], Figure]]":
    """Return, by file name, functions that draw the metric of each kind of runs over time."""
    from . import figures

    standalone = best_alone(runs)
    compared = [run for run in runs if run.times and run is not standalone]
    drawings: dict[str, Callable[[], Figure]] = {}
    for metric in dict.fromkeys(run.metric for run in compared if run.metric.is_accuracy or not as_published):
        line = standalone if standalone and standalone.metric == metric else None
        shown = published if metric.is_accuracy else {}
        for kind, iid in (("iid", True), ("non-iid", False)):
            curves = [run for run in compared if run.metric == metric and run.mode.iid is iid]
            if curves:
                name = run_names.unused(
                    f"{stem_of(metric.name, 'metric')}-{kind}{'-smoothed' * as_published}", drawings
                )
                drawings[name] = partial(figures.accuracy, network, curves, line, curves[0].target, as_published, shown)
    return drawings


def main(arguments: list[str] | None = None) -> int:
    """Run the tool and return its exit code: 0 done, 1 nothing to do or failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.run_command(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
