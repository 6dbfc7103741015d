"""`--local-iterations auto`: the number of local iterations from measured times.

See `coordination.exchange_interval` for the rule.
"""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from .. import config
from ..coordination.exchange_interval import iterations_per_exchange
from ..exchange import Result

AUTO: Literal["auto"] = "auto"
#: The type of the option `local_iterations`.
LocalIterations = Annotated[int, Field(ge=1)] | Literal["auto"]

_EXCHANGE, _ITERATION, _INTERVAL = "exchange_seconds", "iteration_seconds", "interval"


class AutomaticInterval:
    """Chooses the number of local iterations of the next round, the same on all workers.

    With each exchange every worker sends the others the medians of its last rounds' exchange and
    iteration times. The number follows from the longest times of all workers, which all have
    received with the same exchange. From one round to the next it at most doubles or halves. It
    starts at 1, also after a resume, since the network may be a different one.

    Args:
        overlap: whether workers train on during an exchange.

    Attributes:
        SCALARS: what exchanges carry for it → how it is combined.
        iterations: the present number.
    """

    SCALARS: Mapping[str, str] = {_EXCHANGE: "maximum", _ITERATION: "maximum", _INTERVAL: "maximum"}

    def __init__(self, overlap: bool) -> None:
        self.iterations = 1
        self._share = config.AUTO_EXCHANGE_SHARE_OVERLAPPED if overlap else config.AUTO_EXCHANGE_SHARE
        self._exchanges: deque[float] = deque(maxlen=config.AUTO_WINDOW)
        self._iterations: deque[float] = deque(maxlen=config.AUTO_WINDOW)
        self._count, self._seconds = 0, 0.0

    def add(self, seconds: float) -> None:
        """Note the seconds of a local iteration."""
        self._count += 1
        self._seconds += seconds

    def scalars(self) -> dict[str, float]:
        """Return what to tell the others with the exchange that begins."""
        if self._count:
            self._iterations.append(self._seconds / self._count)
            self._count, self._seconds = 0, 0.0
        measured = {_EXCHANGE: self._exchanges, _ITERATION: self._iterations}
        medians = {name: median(values) for name, values in measured.items() if values}
        return {_INTERVAL: float(self.iterations), **medians}

    def follow(self, result: Result, participated: bool = True, iteration_seconds: float | None = None) -> None:
        """Choose the number anew after an exchange.

        Args:
            result: of the exchange.
            participated: whether it was this worker's; else it is the one that has brought the common
                model to a worker that begins.
            iteration_seconds: of the worker whose local iterations are counted; None: the longest
                of all workers.
        """
        if participated:
            self._exchanges.append(max(0.0, result.transfer))
        scalars = result.scalars
        before = max(1, round(scalars.get(_INTERVAL, 1)))
        self.iterations = before
        seconds = scalars.get(_ITERATION, 0.0) if iteration_seconds is None else iteration_seconds
        if seconds > 0 and _EXCHANGE in scalars:
            interval = iterations_per_exchange(scalars[_EXCHANGE], seconds, self._share)
            self.iterations = min(max(interval, math.ceil(before / 2)), 2 * before)
