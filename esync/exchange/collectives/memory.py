"""A transport within one process: ranks that take turns, for tests, the simulator's arithmetic and examples.

Nothing is copied before sender and receiver have both come, as with a large message of MPI: a
schedule that changes values on their way, or whose steps do not fit together, shows itself.
"""

import threading
from collections import deque
from collections.abc import Iterable

import numpy as np

from .transport import Fibre


class Hub:
    """Connects the ranks, which may be threads."""

    def __init__(self, ranks: int) -> None:
        self.transports = [MemoryTransport(self, rank, ranks) for rank in range(ranks)]
        self.lines: dict[tuple[int, int, int], tuple[deque[MemoryTransfer], deque[MemoryTransfer]]] = {}
        self._lock = threading.Lock()

    def post(self, way: tuple[int, int, int], side: int, transfer: "MemoryTransfer") -> "MemoryTransfer":
        """One end of a transfer (0: the sender's) has come; with the other one there, the values are copied."""
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
    """One rank's end; see `transport.Transport`.

    Attributes:
        closed: whether it has been.
    """

    def __init__(self, hub: Hub, rank: int, size: int) -> None:
        self._hub, self.rank, self.size = hub, rank, size
        self.closed = False

    def isend(self, values: np.ndarray, to: int, tag: int) -> MemoryTransfer:
        """See `transport.Transport`."""
        return self._hub.post((self.rank, to, tag), 0, MemoryTransfer(values))

    def irecv(self, values: np.ndarray, source: int, tag: int) -> MemoryTransfer:
        """See `transport.Transport`."""
        return self._hub.post((source, self.rank, tag), 1, MemoryTransfer(values))

    def close(self) -> None:
        """Disconnect, together with all ranks."""
        self.closed = True


def take_turns(fibres: Iterable[Fibre]) -> None:
    """Run several ranks' fibres to their ends; RuntimeError where all of them wait for one another."""
    waiting = list(fibres)
    idle = 0
    while waiting:
        left = []
        for fibre in waiting:
            try:
                next(fibre)
                left.append(fibre)
            except StopIteration:
                idle = 0
        waiting = left
        idle += 1
        if idle > 10_000:
            raise RuntimeError(f"{len(waiting)} ranks wait for one another")
