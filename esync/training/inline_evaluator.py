"""Evaluate in the worker itself, which waits for it."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..runtime.errors import EvaluationError
from ..runtime.evaluation_result import EvaluationResult
from ..runtime.futures import Future
from ..trainer import Trainer


class InlineEvaluator:
    """Evaluates in the worker itself, which waits for it; see `round_callbacks.Evaluator`.

    Args:
        trainer: the trainer whose network is evaluated.
        evaluate: returns the result.
    """

    def __init__(self, trainer: Trainer, evaluate: Callable[[], EvaluationResult]) -> None:
        self._trainer, self._evaluate = trainer, evaluate

    def start(self, weights: Any, statistics: Any, every_sample: bool) -> Future[EvaluationResult]:
        """Evaluate the common model."""
        trainer, evaluation = self._trainer, Future[EvaluationResult]()
        with trainer.mean_statistics():
            try:
                begin = time.monotonic()
                evaluation.complete(replace(self._evaluate(), seconds=time.monotonic() - begin))
            except EvaluationError as error:
                evaluation.fail(error)
        return evaluation

    def close(self) -> None:
        """Do nothing: there is no process to end."""
