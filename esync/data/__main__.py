"""Command line of the data sets: `python -m esync.data fetch [--to DIR]` fetches one.

Exit codes: 0 done, 1 failed, 2 bad usage.
"""

import argparse
import signal
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from esync import config
from esync.runtime import output, program
from esync.runtime.files import expanded
from esync.runtime.user_code import UserCodeError

from .datasets import find_data_dir, load
from .errors import DataError
from .fetch import faults, fetch
from .registry import REGISTRY, AnyEntry
from .user_data import FORMS, check_name


def main(argv: Sequence[str] | None = None, registry: Mapping[str, AnyEntry] = REGISTRY) -> int:
    """Run the command line and return its exit code."""
    parser = _parser(registry)
    args = parser.parse_args(argv)
    if args.command == "check":
        return _check(args)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as on Ctrl-C
    entry = registry[args.dataset]
    try:
        data_dir = args.to if args.to else _default_data_dir(entry)
        fetch(entry, data_dir, mirrors=args.mirror)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        location = error.filename or args.to or config.DATA_DIRS[0]
        print(f"error: {location}: {error.strerror or error}. Choose another place with --to DIR", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: no half-written file is left; run the same command again to go on", file=sys.stderr)
        return 1
    return 0


def _check(args: argparse.Namespace) -> int:
    """Read a data set, and print its properties or its problem."""
    try:
        dataset = load(args.dataset, args.data_dir)
    except (DataError, UserCodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    arrays = dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels
    values = "0 to 255, divided by 255 for the network" if arrays[0].dtype == np.uint8 else "as they are"
    print(f"{dataset.name}: {len(arrays[1])} training and {len(arrays[3])} test samples of {dataset.classes} classes")
    print(f"a sample, as the network gets it: {' × '.join(map(str, dataset.shape))}; {arrays[0].dtype}, {values}")
    print(
        f"memory: {sum(array.nbytes for array in arrays) / 1e6:.1f} MB"
        + f", digest: {dataset.digest}" * bool(dataset.digest)
    )
    counts = [np.bincount(labels, minlength=dataset.classes) for labels in (arrays[1], arrays[3])]
    for label, (train, test) in enumerate(zip(*counts, strict=True)):
        name = f" {dataset.class_names[label]}" if dataset.class_names else ""
        print(f"  label {label}{name}: {train} training, {test} test")
    return 0


def _default_data_dir(entry: AnyEntry) -> Path:
    """Return the directory of the complete data set, or else the first of DATA_DIRS."""
    first = expanded(config.DATA_DIRS[0])
    try:
        directory = find_data_dir(None, entry.name)
    except DataError:
        return first
    return first if faults(entry, directory) else directory


def _parser(registry: Mapping[str, AnyEntry]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program.name("python -m esync.data"), description="Data sets for training.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check", help="read a data set and say what is in it", description="Read a data set; say what is in it."
    )
    check.add_argument("dataset", type=_dataset, help=f"{', '.join(registry)}, or one of your own: {FORMS}")
    check.add_argument("-dd", "--data-dir", help="folder that holds it (default: as for training)")
    command = commands.add_parser("fetch", help="get a data set", description="Get a data set and check it.")
    command.add_argument(
        "--to",
        type=expanded,
        metavar="DIR",
        help=f"directory that gets a folder named after the data set (default: {config.DATA_DIRS[0]})",
    )
    command.add_argument("-d", "--dataset", choices=sorted(registry), default=config.DATASET)
    command.add_argument(
        "--mirror",
        metavar="URL",
        type=_url,
        action="append",
        default=[],
        help="download from this folder instead of the package and the known mirrors (may be repeated)",
    )
    return parser


def _dataset(text: str) -> str:
    try:
        return check_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _url(text: str) -> str:
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme == "file" or (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:  # a malformed address or port
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a URL such as https://HOST/FOLDER or file:///FOLDER")
    return text


if __name__ == "__main__":
    output.install()
    sys.exit(main())
