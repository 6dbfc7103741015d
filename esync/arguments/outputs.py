"""Flags of what a run writes: evaluations, logs and checkpoints."""

import argparse
from collections.abc import Set

from .. import config
from ..models.names import has_batch_norm
from ..runtime.run_names import run_name
from . import presets
from .flag_types import FlagGroup, argparse_type, count, nonempty


def _add_logs(parser: argparse.ArgumentParser) -> None:
    logs = parser.add_argument_group("evaluation and logs")
    add = logs.add_argument
    add(
        "-e",
        "--eval-duration",
        type=count,
        default=config.EVAL_DURATION,
        help="rounds between two evaluations, on rank 0; asynchronous modes: its exchanges (default: %(default)s)",
    )
    add(
        "--test-images",
        type=count,
        help="test images per evaluation while training; all are used for the final model (default: all)",
    )
    add(
        "--reestimate-statistics",
        type=count,
        metavar="N",
        help="estimate batch-norm statistics from N training images before each evaluation and the final model "
        "(default: use the averaged ones)",
    )
    add(
        "--weight-average",
        choices=config.WEIGHT_AVERAGES,
        default=config.WEIGHT_AVERAGE,
        help="polynomial: evaluate, and save as the final model, an average of the common weights over about the last "
        "ninth of the run (Shamir and Zhang, 2013); none: the newest ones (default: %(default)s)",
    )
    add("--no-evaluation", action="store_true", help="never evaluate")
    add("-ld", "--log-dir", default=config.LOG_DIR, help="folder of the logs (default: %(default)s)")
    add(
        "--name",
        type=argparse_type(run_name),
        help="name of this run; its logs are in {log_dir}/{network}/{mode}@NAME/{host} instead of replacing those of "
        "the mode's last run (default: none)",
    )
    add("--overwrite", action="store_true", help="delete an earlier run's logs (otherwise moved aside) and checkpoints")
    add(
        "--tensorboard",
        metavar="DIR",
        help="also write event files for TensorBoard below DIR (default: none)",
    )
    add(
        "--wandb",
        type=nonempty,
        metavar="PROJECT",
        help="also log the run to this project of Weights & Biases (default: none)",
    )
    add("--mlflow", type=nonempty, metavar="URI", help="also log the run to this MLflow server (default: none)")
    add("--quiet", action="store_true", help="no progress lines")


def _check_logs(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse flags that need an evaluation, or batch norm, if there is none."""
    if options.no_evaluation and typed & {"target_accuracy", "eval_duration", "test_images"}:
        raise ValueError("--no-evaluation contradicts --target-accuracy, --eval-duration and --test-images")
    if options.reestimate_statistics is not None and options.no_evaluation and options.no_export:
        raise ValueError("--reestimate-statistics has no effect with --no-evaluation and --no-export; leave it out")
    if options.reestimate_statistics is not None and not has_batch_norm(options.network):
        raise ValueError(f"--reestimate-statistics: network {options.network} has no batch norm; leave it out")
    by_preset = presets.settings_of(options.preset).get("weight_average") == options.weight_average
    if options.weight_average != "none" and not by_preset and options.no_evaluation and options.no_export:
        raise ValueError("--weight-average has no effect with --no-evaluation and --no-export; leave it out")


LOGS = FlagGroup(_add_logs, _check_logs)


def _add_checkpoints(parser: argparse.ArgumentParser) -> None:
    checkpoints = parser.add_argument_group("checkpoints")
    add = checkpoints.add_argument
    add(
        "--checkpoint-dir",
        help="folder for checkpoints, best shared by all workers (default: no checkpoints)",
    )
    add(
        "--checkpoint-every",
        type=count,
        default=config.CHECKPOINT_EVERY,
        help="rounds between two checkpoints (default: %(default)s)",
    )
    add(
        "--keep-checkpoints",
        type=count,
        default=config.KEEP_CHECKPOINTS,
        help="number of checkpoints to keep; older ones are deleted (default: %(default)s)",
    )
    add("--resume", action="store_true", help="resume from the newest checkpoint, or start if there is none")
    add("--no-export", action="store_true", help="do not write the final model")


def _check_checkpoints(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse checkpoints without a folder."""
    needless = typed & {"checkpoint_every", "keep_checkpoints", "resume"}
    if needless and not options.checkpoint_dir:
        raise ValueError(f"--{min(needless).replace('_', '-')} needs --checkpoint-dir")
    if len(switch := typed & {"resume", "overwrite"}) == 1:
        # A flag outranks what the environment says to the contrary.
        setattr(options, "overwrite" if switch == {"resume"} else "resume", False)
    if options.resume and options.overwrite:
        raise ValueError("--resume goes on with an earlier run, --overwrite deletes it")


CHECKPOINTS = FlagGroup(_add_checkpoints, _check_checkpoints)
