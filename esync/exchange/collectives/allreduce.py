"""Allreduce: walks a schedule over a transport, and leaves the sum over all ranks in place.

One process runs several of these fibres at a time, one for each bucket of a large vector: while one
bucket's values are added up, those of the others are on their way.
"""

from functools import lru_cache

import numpy as np

from ... import config
from .schedules import Schedule
from .transport import Fibre, Request, Transport, until_done

CACHE_LINE = 64  # bytes

#: Most buckets of a vector are equally large.
_steps = lru_cache(maxsize=64)(lambda schedule, rank, ranks, values: schedule(rank, ranks, values))


class ReceiveBuffers:
    """Memory to receive into, kept from bucket to bucket: of fresh memory, every page would first have to be found.

    All buffers of a window are one array: from 4 MB on NumPy asks for huge pages, which are found
    and sent faster.
    """

    def __init__(self) -> None:
        self._size = 0
        self._free: list[np.ndarray] = []

    def take(self, size: int) -> np.ndarray:
        """Return room for at least so many bytes."""
        if size > self._size or not self._free:
            self._size = max(-(-size // CACHE_LINE) * CACHE_LINE, self._size)
            self._free = list(np.empty((config.COLLECTIVE_WINDOW, self._size), np.uint8))
        return self._free.pop()

    def give(self, buffer: np.ndarray) -> None:
        """Take a buffer back."""
        if buffer.size == self._size:  # smaller ones are of no use any more
            self._free.append(buffer)


def allreduce(schedule: Schedule, values: np.ndarray, transport: Transport, tag: int, buffers: ReceiveBuffers) -> Fibre:
    """Replace `values` (contiguous, one dimension) by their sum over all ranks; the same bits on all of them.

    Args:
        schedule: who sends what to whom.
        values: of this rank, as many of the same type as on all others.
        transport: to the others.
        tag: of this fibre's messages; those of fibres that run at the same time differ.
        buffers: of this rank.
    """
    steps = _steps(schedule, transport.rank, transport.size, values.size)
    needed = max((sum(move.size for move in step.receives) for step in steps if step.adds), default=0)
    buffer = buffers.take(needed * values.itemsize)
    received = buffer[: needed * values.itemsize].view(values.dtype)
    for step in steps:
        arriving: list[tuple[Request, np.ndarray, np.ndarray]] = []
        at = 0
        for move in step.receives:
            own = values[move.start : move.stop]
            come = received[at : at + move.size] if step.adds else own
            at += move.size
            arriving.append((transport.irecv(come, move.peer, tag), come, own))
        leaving = [transport.isend(values[move.start : move.stop], move.peer, tag) for move in step.sends]
        for request, come, own in arriving:
            yield from until_done(request)
            if step.adds:
                np.add(own, come, out=own)
        for request in leaving:
            yield from until_done(request)
    buffers.give(buffer)
