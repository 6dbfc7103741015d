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
        name: as given.
        transport: as given.
        current: name of the collective in use.
        note: a number for all ranks, sent with every commit.
    """

    note = 0.0

    def __init__(self, name: str, transport: Transport) -> None:
        self.name, self.transport = name, transport
        self.current = name
        self._buffers = ReceiveBuffers()

    @property
    def bucket_elements(self) -> int:
        """The most float32 values of a bucket."""
        return bucket_bytes(self.transport.size) // 4

    def allreduce(self, values: np.ndarray, index: int) -> Coroutine:
        """Return a coroutine that sums bucket `index` over all ranks, in place; start them in order."""
        if self.current == "mpi" and isinstance(self.transport, MPITransport):
            return self.transport.native_allreduce(values)
        return allreduce(SCHEDULES[self.current], values, self.transport, bucket_tag(index), self._buffers)

    def run(self, vector: np.ndarray, backoff: Backoff, check: Callable[[], None] = lambda: None) -> None:
        """Sum a vector over all ranks, in place, and wait; see `transport.CoroutinePool.run`."""
        step = self.bucket_elements * 4 // vector.itemsize
        pieces = [vector[start : start + step] for start in range(0, vector.size, step)]
        CoroutinePool(self.allreduce(piece, index) for index, piece in enumerate(pieces)).run(backoff, check)

    def measure(self, size: int) -> None:
        """Measure the network, if the engine depends on it; all ranks call it together.

        Args:
            size: of the model, in bytes.
        """

    def agree(self, notes: tuple[float, ...]) -> None:
        """Process the notes of all ranks, before the buckets of an exchange start."""

    def record_time(self, size: int, seconds: float) -> None:
        """Record the duration of an exchange on this rank.

        Args:
            size: bytes that were summed.
            seconds: since the last commit.
        """

    def close(self) -> None:
        """Disconnect together with all ranks."""
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()


def bucket_bytes(ranks: int) -> int:
    """Return the most bytes of a bucket."""
    return min(config.COLLECTIVE_BUCKET * max(ranks, 1), config.COLLECTIVE_BUCKET_MAX)
