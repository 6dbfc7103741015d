"""The flag that makes synchronous exchanges smaller."""

import argparse
from collections.abc import Mapping

from .. import config
from ..compression import GRAMMAR, Compression
from .modes import MEANS

MODES_OF: Mapping[str, tuple[str, ...]] = {"compression": (*MEANS, "sync")}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    group = parser.add_argument_group(f"compression (modes {', '.join(MODES_OF['compression'])})")
    group.add_argument(
        "--compression",
        type=_compression,
        default=config.COMPRESSION,
        metavar="KIND",
        help=f"of what workers and servers send each other: {GRAMMAR}; RATIO is the share of each tensor's values that "
        "a worker sends, BACK the share that it gets back at most (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """What cannot be combined with it."""
    if Compression.parse(options.compression) and options.checkpoint_dir:
        raise ValueError(
            f"--compression {options.compression} and --checkpoint-dir: what workers have not sent yet would be lost"
        )


def _compression(text: str) -> str:
    try:
        return str(Compression.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
