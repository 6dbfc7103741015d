"""Allreduce: executes a schedule over a transport.

One process runs several of these coroutines at a time, one for each bucket of a large vector. So
the values of one bucket are added up while those of others are transferred.
"""

from functools import lru_cache

import numpy as np

from ... import config
from .schedules import Schedule
from .transport import Coroutine, Request, Transport, until_done

CACHE_LINE = 64  # bytes

#: Cached, because most buckets of a vector have the same size.
_steps = lru_cache(maxsize=64)(lambda schedule, rank, ranks, values: schedule(rank, ranks, values))


class ReceiveBuffers:
    """Buffers to receive into, reused for all buckets.

    New memory would cost a page fault for every page. All buffers of a window are one array, because
    NumPy requests huge pages from 4 MB on, which cause fewer faults and are sent faster.
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
        """Return a buffer for reuse."""
        if buffer.size == self._size:  # smaller ones are of no use any more
            self._free.append(buffer)


def allreduce(
    schedule: Schedule, values: np.ndarray, transport: Transport, tag: int, buffers: ReceiveBuffers
) -> Coroutine:
    """Replace `values` by their sum over all ranks, bit for bit the same on all of them.

    Args:
        schedule: of the collective.
        values: of this rank, contiguous, of shape (n,); n and the type are the same on all ranks.
        transport: to the other ranks.
        tag: of the messages; concurrent coroutines have different tags.
        buffers: of this rank.
    """
    steps = _steps(schedule, transport.rank, transport.size, values.size)
    needed = max((sum(move.size for move in step.receives) for step in steps if step.adds), default=0)
    buffer = buffers.acquire(needed * values.itemsize)
    received = buffer[: needed * values.itemsize].view(values.dtype)
    for step in steps:
        arriving: list[tuple[Request, np.ndarray, np.ndarray]] = []
        offset = 0
        for move in step.receives:
            target = values[move.start : move.stop]
            incoming = received[offset : offset + move.size] if step.adds else target
            offset += move.size
            arriving.append((transport.irecv(incoming, move.peer, tag), incoming, target))
        leaving = [transport.isend(values[move.start : move.stop], move.peer, tag) for move in step.sends]
        for request, incoming, target in arriving:
            yield from until_done(request)
            if step.adds:
                np.add(target, incoming, out=target)
        for request in leaving:
            yield from until_done(request)
    buffers.release(buffer)
