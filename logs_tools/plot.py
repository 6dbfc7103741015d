"""Draw the five figures and the speedup table from the summaries of a network's modes.

    python logs_tools/plot.py -b logs -n resnet18-v1

Reads the {base}/{network}/{mode}/NAME.json that `summarize` wrote, whichever are there, and writes accuracy over time
(i.i.d. and non-i.i.d.), throughput, traffic and computing time ratio as PNG and PDF, and speedup.txt and
speedup.json, into {base}/{network}/figures.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

if not __package__:  # started as a file: imports start at the checkout, as they do with -m
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matplotlib.figure import Figure
from rich.progress import track

from esync import config
from esync.files import expanded, write_whole
from logs_tools import figures, terminal
from logs_tools.comparison import RunFigures, as_json, run_figures
from logs_tools.modes import BASELINE, BY_FOLDER, MODES, STANDALONE
from logs_tools.summary_file import SummaryError, load_summary
from logs_tools.tables import comparison_text


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with 2 on bad usage."""
    parser = argparse.ArgumentParser(prog="plot", description=__doc__.splitlines()[0])
    parser.add_argument(
        "-b", "--base-dir", type=expanded, default=config.LOG_DIR, help="folder of all logs (default: %(default)s)"
    )
    parser.add_argument("-n", "--network", default=config.NETWORK, help="(default: %(default)s)")
    parser.add_argument(
        "--out", type=expanded, metavar="DIR", help="where to write (default: {base}/{network}/figures)"
    )
    parser.add_argument(
        "--target",
        type=float,
        default=config.TARGET_ACCURACY,
        help="test accuracy for the speedup (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=expanded, metavar="FILE", help="also write what was read, drawn and left out to FILE"
    )
    options = parser.parse_args(arguments)
    if not 0 < options.target <= 1:
        parser.error(f"--target {options.target}: expected an accuracy above 0 and up to 1")
    return options


def run(options: argparse.Namespace) -> int:
    """Draw what can be drawn and return the exit code.

    Raises:
        OSError: a result cannot be written.
    """
    network_folder = options.base_dir / options.network
    runs, problems = _load_runs(network_folder, options.target)
    for problem in problems:
        terminal.complain(problem)
    if not runs:
        terminal.complain(f"nothing to draw: no summary of a mode in {network_folder}; run summarize first")
        return 1
    out = options.out or network_folder / "figures"
    drawings = _drawings(options.network, runs, options.target)
    drawn: list[Path] = []
    shown = track(
        drawings.items(), "drawing", console=terminal.STATUS, disable=not terminal.STATUS.is_terminal, transient=True
    )
    for name, draw in shown:
        drawn += figures.save(draw(), out, name)
    text = comparison_text(options.network, options.target, runs)
    comparison = {
        "network": options.network,
        "target": options.target,
        "baseline": BASELINE,
        "runs": {one.mode.summary: as_json(one, runs) for one in runs},
    }
    write_whole(out / "speedup.txt", text.encode())
    write_whole(out / "speedup.json", _json(comparison))
    if options.json:
        whole = comparison | {"figures": [str(path) for path in drawn], "problems": problems}
        write_whole(options.json, _json(whole))
    print(text)
    print(f"{', '.join(drawings) or 'no figure'}, speedup.txt and speedup.json in {out}")
    return 0


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, allow_nan=False).encode() + b"\n"


def _load_runs(network_folder: Path, target: float) -> tuple[list[RunFigures], list[str]]:
    """Return the figures of every mode with a usable summary, and what is wrong with the others."""
    runs: list[RunFigures] = []
    problems: list[str] = []
    for mode in MODES:
        path = mode.summary_path(network_folder)
        if not path.exists():
            if path.parent.is_dir():
                problems.append(f"{mode.label} left out: {path} is missing; run summarize -m {mode.folder} first")
            continue
        try:
            summary = load_summary(path)
        except SummaryError as error:
            problems.append(f"{mode.label} left out: {error}")
            continue
        except OSError as error:
            problems.append(f"{mode.label} left out: {path} cannot be read: {error.strerror}")
            continue
        model_bytes = config.PUBLISHED_MODEL_BYTES.get(network_folder.name)
        for name, device in ((name, d) for group in summary.values() for name, d in group.items()):
            if not device.bytes_sent_list and model_bytes and mode.method != STANDALONE:
                device.estimate_bytes(model_bytes)
            if device.accuracy_list and not device.accuracy_rounds:
                problems.append(f"{mode.label}: the accuracies of {name} in {path} have no times; run summarize again")
        runs.append(run_figures(mode, summary, target))
    return runs, problems


def _drawings(network: str, runs: list[RunFigures], target: float) -> dict[str, Callable[[], Figure]]:
    """Return the figures for which there is something to draw, by file name."""
    standalone = next((run for run in runs if run.mode is BY_FOLDER["local"]), None)
    compared = [run for run in runs if run is not standalone]
    drawings: dict[str, Callable[[], Figure]] = {}
    for name, iid in (("accuracy-iid", True), ("accuracy-non-iid", False)):
        curves = [run for run in compared if run.times and run.mode.iid is iid]
        if curves:
            drawings[name] = partial(figures.accuracy, network, curves, standalone, target)
    if any(run.throughput is not None for run in compared):
        drawings["throughput"] = partial(figures.throughput, network, compared)
    if any(run.bytes_sent is not None for run in compared):
        drawings["traffic"] = partial(figures.traffic, network, compared)
    if compared:
        drawings["computing-time-ratio"] = partial(figures.computing_ratio, network, compared)
    return drawings


def main(arguments: list[str] | None = None) -> int:
    """Run the tool: exit code 0 done, 1 nothing to do or failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.guarded(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
