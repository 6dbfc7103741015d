"""`--collective auto`: chooses a collective by the cost model and by measured times.

The collectives that the cost model ranks near the best are each used for some of the first
exchanges of the training, then the fastest is kept. If it becomes clearly slower, the others are
tried again. `Autotuner` makes this decision from the predicted and measured times, which are the
same on all ranks, so all ranks choose the same collective.
"""

import json
import time
from collections.abc import Mapping

import numpy as np

from ... import config
from .cost import Costs
from .transport import PROBE, Backoff, Coroutine, CoroutinePool, Transport, allgather_texts, until_done


class Autotuner:
    """Chooses the collective of the next exchange.

    Args:
        predicted: name → seconds by the cost model.

    Attributes:
        current: name of the chosen collective.
        measured: name → shortest measured seconds since the last trials began.
        reason: a phrase that explains the choice.
    """

    def __init__(self, predicted: Mapping[str, float]) -> None:
        order = sorted(predicted, key=lambda name: predicted[name])
        near = [name for name in order if predicted[name] <= config.COLLECTIVE_NEAR * predicted[order[0]]]
        self.measured: dict[str, float] = {}
        self._near, self._untried = near, list(near)
        self._times = 0  # of the trial under way
        self._recent = 0.0  # smoothed seconds of the current one, once the trials are over
        self.current = order[0]
        self.reason = "predicted: " + ", ".join(f"{name} {_seconds(predicted[name])}" for name in order)

    @property
    def settled(self) -> bool:
        """Whether the trials are over."""
        return not self._untried

    def record(self, seconds: float) -> None:
        """Record the seconds of an exchange by `current` on the slowest rank; may change `current`."""
        name = self.current
        if not self.settled:
            self.measured[name] = min(seconds, self.measured.get(name, seconds))
            self._times += 1
            if self._times < config.COLLECTIVE_TRIALS:
                return
            self._times = 0
            self._untried.remove(name)
            self._settle_or_try()
            return
        self._recent += config.COLLECTIVE_SMOOTHING * (seconds - self._recent)
        if self._recent > config.COLLECTIVE_WORSE * self.measured[name] and len(self._near) > 1:
            self.reason = f"{name} now takes {_seconds(self._recent)} instead of {_seconds(self.measured[name])}"
            self.measured.clear()
            self._untried = [name, *(other for other in self._near if other != name)]

    def _settle_or_try(self) -> None:
        if self._untried:
            self.current = self._untried[0]
            return
        order = sorted(self.measured, key=lambda name: self.measured[name])
        self.current = order[0]
        self._recent = self.measured[self.current]
        self.reason = "measured: " + ", ".join(f"{name} {_seconds(self.measured[name])}" for name in order)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"


def measure(transport: Transport) -> Costs:
    """Measure the costs of messages between the ranks.

    Returns:
        The worst costs of any rank, because all wait for that one; the same on all ranks.
    """
    tiny, large = np.zeros(16, np.float32), np.zeros(config.COLLECTIVE_PROBE // 4, np.float32)
    latency = _best(transport, tiny, config.COLLECTIVE_PROBES * 4)
    seconds = _best(transport, large, config.COLLECTIVE_PROBES)
    costs = [latency, max(seconds - latency, 0.0) / large.nbytes, _adding(large)]
    texts: dict[int, str] = {}
    CoroutinePool([allgather_texts(transport, json.dumps(costs), texts)]).run(Backoff(config.COLLECTIVE_PAUSE))
    worst = np.max([json.loads(text) for text in texts.values()], axis=0)
    return Costs(*worst.tolist())


def _best(transport: Transport, values: np.ndarray, times: int) -> float:
    """Return the shortest seconds of a transfer from every rank to the next one."""
    best = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        CoroutinePool([_shift(transport, values)]).run(Backoff(config.COLLECTIVE_PAUSE))
        best = min(best, time.perf_counter() - begun)
    return best


def _shift(transport: Transport, values: np.ndarray) -> Coroutine:
    received = np.empty_like(values)
    after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    requests = [transport.irecv(received, before, PROBE), transport.isend(values, after, PROBE)]
    for request in requests:
        yield from until_done(request)


def _adding(values: np.ndarray) -> float:
    other = np.ones_like(values)
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        np.add(values, other, out=other)
        best = min(best, time.perf_counter() - begun)
    return best / values.nbytes
