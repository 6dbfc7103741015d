"""Allreduce: walks a schedule over a transport, and leaves the sum over all ranks in place.

One process runs several of these coroutines at a time, one for each bucket of a large vector: while
one bucket's values are added up, those of the others are on their way.
"""

from functools import lru_cache

import numpy as np

from ... import config
from .schedules import Schedule
from .transport import Coroutine, Request, Transport, until_done

CACHE_LINE = 64  # bytes

#: Most buckets of a vector are equally large.
_steps = lru_cache(maxsize=64)(lambda schedule, rank, ranks, values: schedule(rank, ranks, values))


class ReceiveBuffers:
    """Memory to receive into, kept from bucket to bucket.

    Fresh memory would cost a page fault for every page. All buffers of a window are one array: from
    4 MB on NumPy asks for huge pages, which cost fewer faults and are sent faster.
    """

    def __init__(self) -> None:
        self._size = 0
        self._free: list[np.ndarray] = []

    def acquire(self, size: int) -> np.ndarray:
        """Return a buffer of at least that many bytes."""
        if size > self._size or not self._free:
            self._size = max(-(-size // CACHE_LINE) * CACHE_LINE, self._size)
            self._free = list(np.empty((config.COLLECTIVE_WINDOW, self._size), np.uint8))
        return self._free.pop()

    def release(self, buffer: np.ndarray) -> None:
        """Take a buffer back."""
        if buffer.size == self._size:  # smaller ones are of no use any more
            self._free.append(buffer)


def allreduce(
    schedule: Schedule, values: np.ndarray, transport: Transport, tag: int, buffers: ReceiveBuffers
) -> Coroutine:
    """Replace `values` by their sum over all ranks, which has the same bits on all of them.

    Args:
        schedule: the transfers of each step.
        values: of this rank, contiguous, with one dimension; as many of the same type as on all
            others.
        transport: to the others.
        tag: of this coroutine's messages; those of coroutines that run at the same time differ.
        buffers: of this rank.
    """
    steps = _steps(schedule, transport.rank, transport.size, values.size)
    needed = max((sum(move.size for move in step.receives) for step in steps if step.adds), default=0)
    buffer = buffers.acquire(needed * values.itemsize)
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
    buffers.release(buffer)
