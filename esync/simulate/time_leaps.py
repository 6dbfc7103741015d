"""Iterations that a worker does in one go where no gradients are computed, because nobody else notices them.

Known for the algorithms of the table at the end, and not for their subclasses, which may exchange
at other times or look at every iteration: those go one iteration at a time.
"""

import math
from typing import Any, Protocol

from ..algorithms import SCAFFOLD, Algorithm, DiLoCo, DyLU, ESync, FedProx, LocalSGD
from ..algorithms.model_averaging import ModelAveraging


class Leaps(Protocol):
    """Leaps over iterations of one worker's algorithm."""

    def possible(self) -> tuple[float, float]:
        """Return how many iterations will neither ask nor exchange, and before which time they have to end."""

    def done(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """Take a leap over `count` iterations that took `seconds` together, the last of them `last` seconds."""


class AveragingLeaps:
    """All iterations of a round but the last; none during an exchange, whose answer may come at any time."""

    def __init__(self, algorithm: ModelAveraging) -> None:
        self._algorithm = algorithm

    def possible(self) -> tuple[float, float]:
        """See `Leaps`."""
        if self._algorithm.in_flight:
            return 0, -math.inf
        return self._algorithm.iterations_left - 1, math.inf

    def done(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `Leaps`."""
        self._algorithm.count_iterations(count, batch_size, seconds, last)


class ESyncLeaps(AveragingLeaps):
    """All iterations of a lease; as `AveragingLeaps` where no state server is asked."""

    _algorithm: ESync

    def possible(self) -> tuple[float, float]:
        """See `Leaps`."""
        algorithm = self._algorithm
        if algorithm.in_flight or not algorithm.asks_state_server:
            return super().possible()
        return (0 if algorithm.asking else math.inf), algorithm.free_until


class DyLULeaps:
    """All iterations of a round but the last."""

    def __init__(self, algorithm: DyLU) -> None:
        self._algorithm = algorithm

    def possible(self) -> tuple[float, float]:
        """See `Leaps`."""
        return self._algorithm.iterations_left - 1, math.inf

    def done(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `Leaps`."""
        self._algorithm.count_iterations(count, batch_size, seconds)


#: Algorithm → what leaps over its iterations.
KNOWN: dict[type[Algorithm], Any] = {
    LocalSGD: AveragingLeaps,
    FedProx: AveragingLeaps,
    SCAFFOLD: AveragingLeaps,
    DiLoCo: AveragingLeaps,
    ESync: ESyncLeaps,
    DyLU: DyLULeaps,
}


def leaps_of(algorithm: Algorithm) -> Leaps | None:
    """Return what leaps over iterations of this algorithm; None where they are done one at a time."""
    kind = KNOWN.get(type(algorithm))
    leaps: Leaps | None = None if kind is None else kind(algorithm)
    return leaps
