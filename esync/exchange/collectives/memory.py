"""A transport within one process, for tests, the simulator and examples.

Values are copied when both ends of a transfer have been posted, as for large messages of MPI. So
tests detect schedules that change values while they are sent, or whose steps do not match.
"""

import threading
from collections import deque
from collections.abc import Iterable

import numpy as np

from .transport import Coroutine


class MemoryNetwork:
    """Connects the ranks, which may be threads."""

    def __init__(self, ranks: int) -> None:
        self.transports = [MemoryTransport(self, rank, ranks) for rank in range(ranks)]
        self.lines: dict[tuple[int, int, int], tuple[deque[MemoryTransfer], deque[MemoryTransfer]]] = {}
        self._lock = threading.Lock()

    def post(self, way: tuple[int, int, int], side: int, transfer: "MemoryTransfer") -> "MemoryTransfer":
        """Register one end of a transfer, and copy the values when both ends are registered.

        Args:
            way: sender, receiver and tag.
            side: 0: the sender's end, 1: the receiver's.
            transfer: this end.
        """
        with self._lock:
            line = self.lines.setdefault(way, (deque(), deque()))
            line[side].append(transfer)
            while line[0] and line[1]:
                sent, received = line[0].popleft(), line[1].popleft()
                if sent.values.size != received.values.size:
                    raise ValueError(f"{sent.values.size} values sent, {received.values.size} expected, on {way}")
                np.copyto(received.values, sent.values)
                sent.over = received.over = True
        return transfer


class MemoryTransfer:
    """One end of a transfer."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.over = values, False

    def done(self) -> bool:
        """See `transport.Request`."""
        return self.over


class MemoryTransport:
    """One rank's end; see `transport.Transport`."""

    crowded = False

    def __init__(self, network: MemoryNetwork, rank: int, size: int) -> None:
        self._network, self.rank, self.size = network, rank, size

    def isend(self, values: np.ndarray, to: int, tag: int) -> MemoryTransfer:
        """See `transport.Transport`."""
        return self._network.post((self.rank, to, tag), 0, MemoryTransfer(values))

    def irecv(self, values: np.ndarray, source: int, tag: int) -> MemoryTransfer:
        """See `transport.Transport`."""
        return self._network.post((source, self.rank, tag), 1, MemoryTransfer(values))


def run_round_robin(coroutines: Iterable[Coroutine]) -> None:
    """Run the coroutines of several ranks in turns until all have ended.

    Raises:
        RuntimeError: they are deadlocked.
    """
    waiting = list(coroutines)
    idle = 0
    while waiting:
        unfinished = []
        for coroutine in waiting:
            try:
                next(coroutine)
                unfinished.append(coroutine)
            except StopIteration:
                idle = 0
        waiting = unfinished
        idle += 1
        if idle > 10_000:
            raise RuntimeError(f"{len(waiting)} ranks wait for one another")
