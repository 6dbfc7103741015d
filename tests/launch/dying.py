"""Synchronous SGD with a worker that is killed once, at a moment near the end.

Tests copy this file to the place from which they load it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from esync.algorithms import SSGD, AlgorithmContext


class Dying(SSGD):
    """As it is, but for the death."""

    def start(self, context: AlgorithmContext) -> None:
        """Have something die."""
        prepare(os.environ["ESYNC_TEST_MOMENT"])
        super().start(context)


def prepare(moment: str) -> None:
    """Make the moment deadly for the first process of the job that comes to it."""
    from esync.models import export
    from esync.runtime import progress
    from esync.trainer import Trainer

    def before(owner: Any, name: str, condition: Callable[..., bool]) -> None:
        call, flag = getattr(owner, name), Path(f"died-{moment}")

        def called(*arguments: Any, **named: Any) -> Any:
            if condition(*arguments) and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), 9)
            return call(*arguments, **named)

        setattr(owner, name, called)

    if moment == "the last rounds":
        before(progress.ProgressReporter, "round", lambda _, entry: (entry.rank, entry.round) == (1, 8))
    elif moment == "the export":
        before(export, "save", lambda *_: True)
    else:
        before(Trainer, "close", lambda trainer: trainer.rank == 1)
