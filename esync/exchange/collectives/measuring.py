"""Measures what the cost model needs, between all workers at the start: latency, bandwidth, and the speed of adding."""

import json
import time

import numpy as np

from ... import config
from .allgather import PROBE, gather_texts
from .coroutines import Fibre, Fibres, Pauses, until_done
from .cost import Costs
from .transport import Transport


def measure(transport: Transport, servers: int = 0) -> Costs:
    """The same costs on all ranks: the worst that any of them has measured, because all wait for that one."""
    tiny, large = np.zeros(16, np.float32), np.zeros(config.COLLECTIVE_PROBE // 4, np.float32)
    latency = _best(transport, tiny, config.COLLECTIVE_PROBES * 4)
    seconds = _best(transport, large, config.COLLECTIVE_PROBES)
    own = [latency, max(seconds - latency, 0.0) / large.nbytes, _adding(large)]
    texts: dict[int, str] = {}
    Fibres([lambda: gather_texts(transport, json.dumps(own), texts)]).run(Pauses(config.COLLECTIVE_PAUSE))
    worst = np.max([json.loads(text) for text in texts.values()], axis=0)
    return Costs(float(worst[0]), float(worst[1]), float(worst[2]), servers)


def _best(transport: Transport, values: np.ndarray, times: int) -> float:
    """Seconds in which every rank sends to the next one and receives from the one before; the shortest of some."""
    best = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        Fibres([lambda: _shift(transport, values)]).run(Pauses(config.COLLECTIVE_PAUSE))
        best = min(best, time.perf_counter() - begun)
    return best


def _shift(transport: Transport, values: np.ndarray) -> Fibre:
    taken = np.empty_like(values)
    after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    requests = [transport.irecv(taken, before, PROBE), transport.isend(values, after, PROBE)]
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
