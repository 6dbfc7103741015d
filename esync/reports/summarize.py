"""Summarize the round files of a mode's devices in one NAME.json.

    python logs_tools/summarize.py --log-dir logs -n resnet18-v1 -m esync

This reads {base}/{network}/{mode}/{host}/{device}/iter-N.txt for all hosts and devices, and writes
{base}/{network}/{mode}/NAME.json (see `esync.reports.summary_file`); without -m, for every mode whose
folder contains rounds. Invalid files are reported and skipped.
"""

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from rich.markup import escape
from rich.progress import track

from .. import config
from ..runtime import program, terminal
from ..runtime.files import expanded, write_json
from ..runtime.output import printable
from .aggregate import ModeReport, summarize_mode
from .discovery import holds_rounds, mode_folders, others_to_choose
from .metrics import MAX_NUMBER
from .modes import FOLDERS, mode_of
from .summary_file import columns_of


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("summarize"), description="Summarize the round files of a mode's devices in one NAME.json."
    )
    add_logs(parser)
    parser.add_argument(
        "-m",
        "--mode",
        metavar="FOLDER",
        help=f"one of {', '.join(FOLDERS)}, or any other folder that is there (default: every one that holds rounds)",
    )
    parser.add_argument(
        "--model-bytes",
        type=int,
        help="size of the model, to estimate the traffic of logs without bytes "
        f"(default: as published, for {', '.join(config.PUBLISHED_MODEL_BYTES)})",
    )
    parser.add_argument("--json", type=expanded, metavar="FILE", help="also write what was read and skipped to FILE")
    options = parser.parse_args(arguments)
    if options.mode is not None and options.mode not in FOLDERS:
        network_folder = options.log_dir / options.network
        folders = [name for name in mode_folders(network_folder) if name not in FOLDERS]
        if options.mode not in folders:
            parser.error(f"unknown mode {options.mode!r}: choose one of {', '.join([*FOLDERS, *folders])}")
    if options.model_bytes is not None and not 0 < options.model_bytes <= MAX_NUMBER:
        parser.error(f"--model-bytes {options.model_bytes}: expected a number of bytes above 0, at most {MAX_NUMBER:g}")
    if options.model_bytes is None:
        options.model_bytes = config.PUBLISHED_MODEL_BYTES.get(options.network)
    return options


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which logs to read."""
    parser.add_argument(
        *("-ld", "--log-dir", "-b", "--base-dir"),
        type=expanded,
        default=config.LOG_DIR,
        metavar="DIR",
        help="folder of all logs, as for esync launch (default: %(default)s)",
    )
    parser.add_argument("-n", "--network", default=config.NETWORK, help="(default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Summarize the chosen modes, and return the exit code.

    Raises:
        OSError: a folder cannot be listed or a result cannot be written.
    """
    network_folder = options.log_dir / options.network
    reports = []
    for folder in _folders_to_read(network_folder, options.mode):
        progress = partial(
            track,
            description=escape(f"reading {printable(folder)}"),
            console=terminal.STATUS,
            disable=not terminal.STATUS.is_terminal,
            transient=True,
        )
        reports.append(summarize_mode(network_folder, folder, options.model_bytes, progress))
    for report in reports:
        _print_report(report)
    if options.json:
        content = {
            "base_dir": str(options.log_dir),
            "network": options.network,
            "modes": {report.mode.folder: report.as_json() for report in reports},
        }
        write_json(options.json, content, allow_nan=False)
    if not any(report.summary for report in reports):
        chosen = options.mode or "MODE"
        terminal.print_error(
            f"nothing to summarize in {network_folder}: expected {chosen}/HOST/DEVICE/iter-N.txt there"
            + others_to_choose(options.log_dir, options.network)
        )
        return 1
    return 0


def _folders_to_read(network_folder: Path, chosen: str | None) -> list[str]:
    """Return the chosen folder if it exists; if none is chosen, all folders of modes.

    These are the folders of built-in algorithms, and others that contain rounds.
    """
    existing = mode_folders(network_folder)
    if chosen:
        return [chosen] if chosen in existing else []
    folders = []
    for name in sorted(existing, key=lambda name: mode_of(name).place()):
        try:
            if name in FOLDERS or holds_rounds(network_folder / name):
                folders.append(name)
        except OSError as error:
            terminal.print_error(f"{network_folder / name} left out: {error.strerror or error}")
    return folders


def _print_report(report: ModeReport) -> None:
    """Print the path of the summary and, to standard error, what is missing in it."""
    if report.summary:
        devices, path = len(columns_of(report.summary)), printable(str(report.path))
        print(f"{report.mode.label}: {report.rounds_read} round files, devices: {devices}, in {path}")
    if report.earlier:
        terminal.print_error(f"{report.mode.folder}: {report.earlier}")
    for warning in report.warnings[: config.SKIPPED_SHOWN]:
        terminal.print_error(f"{report.mode.folder}: {warning}")
    for skip in report.skipped[: config.SKIPPED_SHOWN]:
        terminal.print_error(str(skip))
    unnamed = max(0, len(report.skipped) - config.SKIPPED_SHOWN) + max(0, len(report.warnings) - config.SKIPPED_SHOWN)
    if unnamed:
        terminal.print_error(f"… and {unnamed} more; --json FILE lists all of them")
    if report.skipped:
        counts = Counter(skip.category for skip in report.skipped)
        parts = ", ".join(f"{count} {category}" for category, count in sorted(counts.items()))
        terminal.print_error(f"{report.mode.folder}: {len(report.skipped)} skipped ({parts})")


def main(arguments: list[str] | None = None) -> int:
    """Run the tool and return its exit code: 0 done, 1 nothing to do or failed, 2 bad usage."""
    options = parse_arguments(arguments)
    return terminal.run_command(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
