"""Flags of the checkpoints."""

import argparse
from collections.abc import Mapping

from .. import config
from .modes import DENSE
from .values import count

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "checkpoint_dir": DENSE,
    "checkpoint_every": DENSE,
    "keep_checkpoints": DENSE,
    "resume": DENSE,
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    checkpoints = parser.add_argument_group("checkpoints")
    add = checkpoints.add_argument
    add("--checkpoint-dir", help="folder for checkpoints, best one that all workers see (default: no checkpoints)")
    add(
        "--checkpoint-every",
        type=count,
        default=config.CHECKPOINT_EVERY,
        help="rounds from one checkpoint to the next (default: %(default)s)",
    )
    add(
        "--keep-checkpoints",
        type=count,
        default=config.KEEP_CHECKPOINTS,
        help="how many are kept; older ones are deleted (default: %(default)s)",
    )
    add("--resume", action="store_true", help="go on from the newest checkpoint; from the beginning if there is none")
    add("--no-export", action="store_true", help="do not write the final model")


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Nothing of it without a folder."""
    needless = typed & {"checkpoint_every", "keep_checkpoints", "resume"}
    if needless and not options.checkpoint_dir:
        raise ValueError(f"--{min(needless).replace('_', '-')} needs --checkpoint-dir")
    if options.resume and options.overwrite:
        raise ValueError("--resume goes on with an earlier run, --overwrite deletes it")
