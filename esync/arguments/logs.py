"""Flags of the evaluation and the logs."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from .mode import Condition
from .values import count

CONDITIONS: Mapping[str, Condition] = {}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    logs = parser.add_argument_group("evaluation and logs")
    add = logs.add_argument
    add(
        "-e",
        "--eval-duration",
        type=count,
        default=config.EVAL_DURATION,
        help="evaluate every that many rounds, on rank 0 (default: %(default)s)",
    )
    add(
        "--test-images",
        type=count,
        help="evaluate so many test images while training; the final model always on all (default: all)",
    )
    add("--no-evaluation", action="store_true", help="never evaluate")
    add("-ld", "--log-dir", default=config.LOG_DIR, help="folder of the logs (default: %(default)s)")
    add("--overwrite", action="store_true", help="delete an earlier run's logs (else moved aside) and checkpoints")
    add("--quiet", action="store_true", help="no progress lines")


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse, without an evaluation, the flags that need one."""
    if options.no_evaluation and typed & {"target_accuracy", "eval_duration", "test_images"}:
        raise ValueError("--no-evaluation contradicts --target-accuracy, --eval-duration and --test-images")
