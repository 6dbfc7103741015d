"""Flags of what a run writes: evaluations, logs and checkpoints."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from .flag_types import Condition, FlagGroup, count
from .mode import choose_algorithm


def _add_logs(parser: argparse.ArgumentParser) -> None:
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


def _check_logs(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse, without an evaluation, the flags that need one."""
    if options.no_evaluation and typed & {"target_accuracy", "eval_duration", "test_images"}:
        raise ValueError("--no-evaluation contradicts --target-accuracy, --eval-duration and --test-images")


LOGS = FlagGroup(_add_logs, _check_logs)


_CHECKPOINTS_CONDITIONS: Mapping[str, Condition] = dict.fromkeys(
    ("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume"),
    lambda algorithm: not algorithm.prevents_checkpoints,
)


def _add_checkpoints(parser: argparse.ArgumentParser) -> None:
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


def _check_checkpoints(options: argparse.Namespace, typed: Set[str]) -> None:
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


CHECKPOINTS = FlagGroup(_add_checkpoints, _check_checkpoints, _CHECKPOINTS_CONDITIONS)
