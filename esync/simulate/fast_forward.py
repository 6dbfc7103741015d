"""Fast-forward: several iterations of a worker in one step, if they do not affect other workers.

No gradients are computed in them. The table at the end lists the algorithms that support it. Their
subclasses do not, because they may exchange at other times or examine every iteration.
"""

import math
from typing import Any, Protocol

from typing_extensions import override

from ..algorithms import SCAFFOLD, Algorithm, DiLoCo, DyLU, ESync, FedProx, LocalSGD, TieredESync
from ..algorithms.model_averaging import ModelAveraging


class FastForward(Protocol):
    """Fast-forwards iterations of one worker's algorithm."""

    def possible(self) -> tuple[float, float]:
        """Return the number of iterations without a query or an exchange, and when they must end."""

    def done(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """Count `count` iterations that have been fast-forwarded.

        They took `seconds` together, and the last of them took `last` seconds.
        """


class AveragingFastForward:
    """Fast-forwards all iterations of a round except the last one, and none during an exchange."""

    def __init__(self, algorithm: ModelAveraging) -> None:
        self._algorithm = algorithm

    def possible(self) -> tuple[float, float]:
        """See `FastForward.possible`."""
        if self._algorithm.in_flight:
            return 0, -math.inf
        return self._algorithm.iterations_left - 1, math.inf

    def done(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `FastForward.done`."""
        self._algorithm.count_iterations(count, batch_size, seconds, last)


class ESyncFastForward(AveragingFastForward):
    """Fast-forwards all iterations of a lease; without a state server, like `AveragingFastForward`."""

    _algorithm: ESync

    @override
    def possible(self) -> tuple[float, float]:
        algorithm = self._algorithm
        if algorithm.in_flight or not algorithm.asks_state_server:
            return super().possible()
        return (0 if algorithm.asking else math.inf), algorithm.free_until


class DyLUFastForward:
    """Fast-forwards all iterations of a round except the last one."""

    def __init__(self, algorithm: DyLU) -> None:
        self._algorithm = algorithm

    def possible(self) -> tuple[float, float]:
        """See `FastForward.possible`."""
        return self._algorithm.iterations_left - 1, math.inf

    def done(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `FastForward.done`."""
        self._algorithm.count_iterations(count, batch_size, seconds)


#: Algorithm → its class of fast-forward.
KNOWN: dict[type[Algorithm], Any] = {
    LocalSGD: AveragingFastForward,
    FedProx: AveragingFastForward,
    SCAFFOLD: AveragingFastForward,
    DiLoCo: AveragingFastForward,
    ESync: ESyncFastForward,
    TieredESync: ESyncFastForward,
    DyLU: DyLUFastForward,
}


def fast_forward_of(algorithm: Algorithm) -> FastForward | None:
    """Return the fast-forward of an algorithm, or None if it does one iteration at a time."""
    kind = KNOWN.get(type(algorithm))
    fast_forward: FastForward | None = None if kind is None else kind(algorithm)
    return fast_forward
