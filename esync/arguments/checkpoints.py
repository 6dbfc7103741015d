"""Flags of the checkpoints."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from .mode import Condition, choose_algorithm
from .values import count

CONDITIONS: Mapping[str, Condition] = dict.fromkeys(
    ("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume"),
    lambda algorithm: not algorithm.prevents_checkpoints,
)


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


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse them without a folder, and where they would lose what workers have not sent yet."""
    if options.checkpoint_dir and (obstacle := choose_algorithm(options).prevents_checkpoints):
        raise ValueError(
            f"--checkpoint-dir makes no sense with {obstacle}: a checkpoint would lose what workers have not sent yet"
        )
    needless = typed & {"checkpoint_every", "keep_checkpoints", "resume"}
    if needless and not options.checkpoint_dir:
        raise ValueError(f"--{min(needless).replace('_', '-')} needs --checkpoint-dir")
    if options.resume and options.overwrite:
        raise ValueError("--resume goes on with an earlier run, --overwrite deletes it")
