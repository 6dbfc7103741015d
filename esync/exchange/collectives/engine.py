"""Which collective sums the buckets of a job, over which transport."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from ... import config
from . import SCHEDULES
from .allgather import bucket_tag
from .allreduce import Rooms, allreduce
from .coroutines import Fibre, Fibres, Pauses
from .transport import Transport


@runtime_checkable
class OwnAllreduce(Protocol):
    """A transport that can sum by itself, as MPI can."""

    def own_allreduce(self, values: np.ndarray) -> Fibre:
        """A fibre that replaces `values` by their sum over all ranks."""


class Engine:
    """A collective that stays the same all the time; `auto.AutoEngine` chooses.

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
        self._rooms = Rooms()

    @property
    def bucket_elements(self) -> int:
        """The most float32 values of a bucket: the part of each rank should be large enough, and the whole not huge."""
        return bucket_bytes(self.transport.size) // 4

    def allreduce(self, values: np.ndarray, index: int) -> Fibre:
        """A fibre that sums bucket number `index` over all ranks, in place; all ranks begin their buckets in order."""
        if self.current == "mpi" and isinstance(self.transport, OwnAllreduce):
            return self.transport.own_allreduce(values)
        return allreduce(SCHEDULES[self.current], values, self.transport, bucket_tag(index), self._rooms)

    def run(self, vector: np.ndarray, pauses: Pauses, check: Callable[[], None] = lambda: None) -> None:
        """Sum a vector over all ranks, in place, and wait for it; see `fibres.Fibres.run`."""
        step = self.bucket_elements * 4 // vector.itemsize
        pieces = [vector[at : at + step] for at in range(0, vector.size, step)]

        def maker(index: int) -> Callable[[], Fibre]:
            return lambda: self.allreduce(pieces[index], index)

        Fibres([maker(index) for index in range(len(pieces))]).run(pauses, check)

    def measure(self, size: int) -> None:
        """All workers are there: see how fast they reach one another, where that matters.

        Args:
            size: of the model, in bytes.
        """

    def agree(self, notes: tuple[float, ...]) -> None:
        """All ranks know the notes of all ranks, before the buckets of an exchange begin."""

    def took(self, size: int, seconds: float) -> None:
        """An exchange of so many bytes took so long on this rank, from the last commit on."""

    def close(self) -> None:
        """All ranks take leave."""
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()


def bucket_bytes(ranks: int) -> int:
    """The most bytes of a bucket."""
    return min(config.COLLECTIVE_BUCKET * max(ranks, 1), config.COLLECTIVE_BUCKET_MOST)
