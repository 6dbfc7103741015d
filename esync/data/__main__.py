"""Command line of the data sets: `python -m esync.data fetch [--to DIR]` gets one. Exit codes: 0, 1 failed, 2 usage."""

import argparse
import signal
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

from esync import config
from esync.runtime import program
from esync.runtime.files import expanded

from .datasets import find_data_dir
from .errors import DataError
from .fetch import SOURCES, faults, fetch
from .registry import REGISTRY, AnyEntry


def main(argv: Sequence[str] | None = None, registry: Mapping[str, AnyEntry] = REGISTRY) -> int:
    """Run the command line and return its exit code."""
    parser = _parser(registry)
    args = parser.parse_args(argv)
    if args.mirror and args.source == "apt":
        parser.error("--mirror makes no sense with --source apt: leave one of them out")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end like on Ctrl-C, with nothing left behind
    entry = registry[args.dataset]
    try:
        data_dir = args.to if args.to else _default_data_dir(entry)
        fetch(entry, data_dir, source=args.source, mirrors=args.mirror, timeout=args.timeout)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        place = error.filename or args.to or config.DATA_DIRS[0]
        print(f"error: {place}: {error.strerror or error}. Choose another place with --to DIR", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: no half-written file is left; run the same command again to go on", file=sys.stderr)
        return 1
    return 0


def _default_data_dir(entry: AnyEntry) -> Path:
    """Choose the place where the data set is found and whole already, else the first of config.DATA_DIRS."""
    first = expanded(config.DATA_DIRS[0])
    try:
        found = find_data_dir(None, entry.name)
    except DataError:
        return first
    return first if faults(entry, found) else found


def _parser(registry: Mapping[str, AnyEntry]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program.name("python -m esync.data"), description="Data sets for training.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("fetch", help="get a data set", description="Get a data set and check it.")
    command.add_argument(
        "--to",
        type=expanded,
        metavar="DIR",
        help=f"directory that gets a folder named after the data set (default: {config.DATA_DIRS[0]})",
    )
    command.add_argument("-d", "--dataset", choices=sorted(registry), default=config.DATASET)
    command.add_argument(
        "--source",
        choices=SOURCES,
        default="auto",
        help="apt: from Debian's package, without installing it; download: from the mirrors; "
        "auto (default): the package where that is possible, else the mirrors",
    )
    command.add_argument(
        "--mirror",
        metavar="URL",
        type=_url,
        action="append",
        default=[],
        help="download from this folder instead of the package and the known mirrors (may be repeated)",
    )
    command.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=config.FETCH_TIMEOUT,
        help="give up a download after that long without a byte (default: %(default)g)",
    )
    return parser


def _url(text: str) -> str:
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme == "file" or (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:  # a malformed address or port
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a URL such as https://HOST/FOLDER or file:///FOLDER")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
