"""Evaluation in virtual time: it takes as long as the model says, and its accuracy is the real one."""

from collections.abc import Callable
from typing import Protocol

from .engine import Engine, Later


class Values(Protocol):
    """Weights, or statistics; see `replica.FlatArrays`."""

    size: int


class SimulatedExaminer:
    """Evaluates one model at a time, as `evaluate.EvaluationProcess` does.

    Args:
        engine: whose time.
        lasting: seconds of virtual time that an evaluation takes.
        accuracy: works it out for (weights, statistics, every image or some), values opened by the caller.
    """

    def __init__(self, engine: Engine, lasting: float, accuracy: Callable[[Values, Values, bool], float]) -> None:
        self._engine, self._lasting, self._accuracy = engine, lasting, accuracy
        self._current: Later[float] | None = None

    def start(self, weights: Values, statistics: Values, every_image: bool = False) -> Later[float] | None:
        """Evaluate these values as they are now; None while an evaluation is under way."""
        if self._current is not None and not self._current.done():
            return None
        accuracy = self._accuracy(weights, statistics, every_image)
        self._current = Later(self._engine, self._engine.now + self._lasting, accuracy)
        return self._current

    def close(self) -> None:
        """Nothing is left to do."""
