"""Loggers of runs: TensorBoard, Weights & Biases, MLflow, and those of the user.

May import `config` and `runtime`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .background import BackgroundLogger
from .logger import LoggedRun, Logger, LoggerError
from .mlflow import MLflowLogger
from .wandb import WandbLogger

__all__ = [
    "BackgroundLogger",
    "LoggedRun",
    "Logger",
    "LoggerError",
    "MLflowLogger",
    "WandbLogger",
    "attach",
    "chosen_loggers",
]

_KINDS: Mapping[str, type[WandbLogger] | type[MLflowLogger]] = {"wandb": WandbLogger, "mlflow": MLflowLogger}


def attach(references: Mapping[str, Any], name: str, paths: Sequence[Path], error: str = "") -> list[str]:
    """Add files to a run that has been logged, in the order of the arguments.

    Args:
        references: name of each logger → what its `begin` has returned.
        name: of the files.
        paths: the files.
        error: why the run has failed, if it has.

    Returns:
        Why files could not be added: a line for each logger that has failed.
    """
    problems = []
    for kind in _KINDS.keys() & references.keys():
        try:
            reference = references[kind]
            logger = BackgroundLogger(_KINDS[kind].of(reference))
            logger.begin(LoggedRun(reference.get("name", ""), reference.get("group", ""), {}, reference))
            logger.add_files(name, paths)
            logger.close(error)
        except (LoggerError, KeyError, TypeError, AttributeError) as problem:
            problems.append(f"{kind} lacks {', '.join(path.name for path in paths)}: {problem}")
    return problems


def chosen_loggers(wandb: str | None, mlflow: str | None) -> list[Logger]:
    """Return the loggers that flags or the environment ask for.

    Args:
        wandb: project of Weights & Biases; None: not asked for.
        mlflow: URI of an MLflow server; None: not asked for.

    Raises:
        LoggerError: a package is not installed.
    """
    loggers: list[Logger] = []
    if wandb is not None:
        loggers.append(WandbLogger(wandb))
    if mlflow is not None:
        loggers.append(MLflowLogger(mlflow))
    return loggers
