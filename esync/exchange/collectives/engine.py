"""The engine of a collective, which sums the buckets of a job over one transport."""

from collections.abc import Callable

import numpy as np

from ... import config
from . import SCHEDULES
from .allreduce import ReceiveBuffers, allreduce
from .mpi import MPITransport
from .transport import Backoff, Coroutine, CoroutinePool, Transport, bucket_tag


class CollectiveEngine:
    """Sums by one collective; `autotuner.AutoEngine` chooses among several.

    Args:
        name: ring, butterfly, binary-blocks or mpi.
        transport: to the other ranks.

    Attributes:
        note: a number for all ranks, said with every commit.
    """

    note = 0.0

    def __init__(self, name: str, transport: Transport) -> None:
        self.name, self.transport = name, transport
        self.current = name
        self._buffers = ReceiveBuffers()

    @property
    def bucket_elements(self) -> int:
        """The most float32 values of a bucket.

        The part of each rank should be large enough, and the whole not huge.
        """
        return bucket_bytes(self.transport.size) // 4

    def allreduce(self, values: np.ndarray, index: int) -> Coroutine:
        """Return a coroutine that sums bucket number `index` over all ranks, in place.

        Buckets begin in order.
        """
        if self.current == "mpi" and isinstance(self.transport, MPITransport):
            return self.transport.own_allreduce(values)
        return allreduce(SCHEDULES[self.current], values, self.transport, bucket_tag(index), self._buffers)

    def run(self, vector: np.ndarray, backoff: Backoff, check: Callable[[], None] = lambda: None) -> None:
        """Sum a vector over all ranks, in place, and wait; see `transport.CoroutinePool.run`."""
        step = self.bucket_elements * 4 // vector.itemsize
        pieces = [vector[at : at + step] for at in range(0, vector.size, step)]
        CoroutinePool(self.allreduce(piece, index) for index, piece in enumerate(pieces)).run(backoff, check)

    def measure(self, size: int) -> None:
        """Measure how fast the workers reach one another, where that matters.

        All of them are there and call it.

        Args:
            size: of the model, in bytes.
        """

    def agree(self, notes: tuple[float, ...]) -> None:
        """Take the notes of all ranks, before the buckets of an exchange begin."""

    def took(self, size: int, seconds: float) -> None:
        """Note the duration of an exchange on this rank, from the last commit on.

        Args:
            size: bytes that it has summed.
            seconds: its duration.
        """

    def close(self) -> None:
        """Disconnect together with all ranks."""
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()


def bucket_bytes(ranks: int) -> int:
    """Return the most bytes of a bucket."""
    return min(config.COLLECTIVE_BUCKET * max(ranks, 1), config.COLLECTIVE_BUCKET_MOST)
