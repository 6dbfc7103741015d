"""The engine of a collective: sums the buckets of a job by one schedule, over one transport."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from ... import config
from . import SCHEDULES
from .allreduce import ReceiveBuffers, allreduce
from .transport import Fibre, Fibres, Pauses, Transport, bucket_tag


@runtime_checkable
class OwnAllreduce(Protocol):
    """A transport that can sum by itself, as MPI can."""

    def own_allreduce(self, values: np.ndarray) -> Fibre:
        """Return a fibre that replaces `values` by their sum over all ranks."""


class CollectiveEngine:
    """Sums by one collective; `autotuner.AutoEngine` chooses.

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
        """The most float32 values of a bucket: the part of each rank should be large enough, and the whole not huge."""
        return bucket_bytes(self.transport.size) // 4

    def allreduce(self, values: np.ndarray, index: int) -> Fibre:
        """Return a fibre that sums bucket number `index` over all ranks, in place; buckets begin in order."""
        if self.current == "mpi" and isinstance(self.transport, OwnAllreduce):
            return self.transport.own_allreduce(values)
        return allreduce(SCHEDULES[self.current], values, self.transport, bucket_tag(index), self._buffers)

    def run(self, vector: np.ndarray, pauses: Pauses, check: Callable[[], None] = lambda: None) -> None:
        """Sum a vector over all ranks, in place, and wait for it; see `transport.Fibres.run`."""
        step = self.bucket_elements * 4 // vector.itemsize
        pieces = [vector[at : at + step] for at in range(0, vector.size, step)]

        def maker(index: int) -> Callable[[], Fibre]:
            return lambda: self.allreduce(pieces[index], index)

        Fibres([maker(index) for index in range(len(pieces))]).run(pauses, check)

    def measure(self, size: int) -> None:
        """Measure how fast the workers, all of which are there, reach one another, where that matters.

        Args:
            size: of the model, in bytes.
        """

    def agree(self, notes: tuple[float, ...]) -> None:
        """Take the notes of all ranks, before the buckets of an exchange begin."""

    def took(self, size: int, seconds: float) -> None:
        """Note how long an exchange of so many bytes took on this rank, from the last commit on."""

    def close(self) -> None:
        """Disconnect, together with all ranks."""
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()


def bucket_bytes(ranks: int) -> int:
    """The most bytes of a bucket."""
    return min(config.COLLECTIVE_BUCKET * max(ranks, 1), config.COLLECTIVE_BUCKET_MOST)
