"""Draw the five figures and the speedup table from the summaries of a network's modes.

    python logs_tools/plot.py -b logs -n resnet18-v1

Reads the {base}/{network}/{mode}/NAME.json that `summarize` wrote, of whatever algorithms, and writes accuracy over
time (i.i.d. and non-i.i.d.), throughput, traffic and computing time ratio as PNG and PDF, and speedup.txt and
speedup.json, into {base}/{network}/figures.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from rich.progress import track

from .. import config
from ..algorithms.registry import FIGURES
from ..runtime import program, terminal
from ..runtime.files import expanded, write_atomically
from . import figures
from .discovery import SPEEDUP_FILE
from .load import load_runs
from .metrics_table import RunFigures, as_json
from .modes import BASELINE_LABEL, STANDALONE
from .tables import comparison_text


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with 2 on bad usage."""
    parser = argparse.ArgumentParser(prog=program.name("plot"), description=__doc__.splitlines()[0])
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
    runs, problems = load_runs(network_folder, options.target)
    for problem in problems:
        terminal.print_error(problem)
    if not runs:
        terminal.print_error(f"nothing to draw: no summary of a mode in {network_folder}; run summarize first")
        return 1
    out = options.out or network_folder / FIGURES
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
        "baseline": BASELINE_LABEL,
        "runs": {key: as_json(one, runs) for key, one in zip(_keys(runs), runs, strict=True)},
    }
    write_atomically(out / "speedup.txt", text.encode())
    write_atomically(out / SPEEDUP_FILE, _json(comparison))
    if options.json:
        whole = comparison | {"figures": [str(path) for path in drawn], "problems": problems}
        write_atomically(options.json, _json(whole))
    print(text)
    print(f"{', '.join(drawings) or 'no figure'}, speedup.txt and {SPEEDUP_FILE} in {out}")
    return 0


def _keys(runs: list[RunFigures]) -> list[str]:
    """Return the stem of each run's summary, with its folder behind it where an earlier run has the same one."""
    keys: list[str] = []
    for run in runs:
        stem = run.mode.summary
        keys.append(f"{stem} ({run.mode.folder})" if stem in keys else stem)
    return keys


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, allow_nan=False).encode() + b"\n"


def _drawings(network: str, runs: list[RunFigures], target: float) -> dict[str, Callable[[], Figure]]:
    """Return the figures for which there is something to draw, by file name."""
    standalone = next((run for run in runs if run.mode.name == STANDALONE), None)
    compared = [run for run in runs if run.mode.name != STANDALONE]
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
