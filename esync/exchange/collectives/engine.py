"""The engine of a collective, which sums the buckets of a job over one transport."""

import logging
from collections.abc import Callable

import numpy as np

from . import SCHEDULES
from .allreduce import ReceiveBuffers, allreduce
from .autotuner import Autotuner
from .mpi import MPITransport
from .transport import Backoff, Coroutine, CoroutinePool, Transport, bucket_bytes, bucket_tag

log = logging.getLogger(__name__)

#: The collective that is the fastest one of the others.
AUTO = "auto"


class CollectiveEngine:
    """Sums by one collective, or by one that it chooses for every exchange, the same on all ranks.

    Args:
        name: ring, butterfly, binary-blocks, mpi or auto.
        transport: to the other ranks.

    Attributes:
        name: as given.
        transport: as given.
        current: name of the collective in use.
        seconds: of the last exchange on this rank, since the last commit; sent to all ranks with
            every commit.
    """

    def __init__(self, name: str, transport: Transport) -> None:
        self.name, self.transport = name, transport
        self.seconds = 0.0
        names = [*SCHEDULES, *(["mpi"] if isinstance(transport, MPITransport) else [])]
        self._choice = Autotuner(names) if name == AUTO else None
        self.current = name if self._choice is None else self._choice.current
        self._buffers = ReceiveBuffers()

    @property
    def bucket_elements(self) -> int:
        """The most float32 values of a bucket."""
        return bucket_bytes(self.transport.size, self.transport.crowded) // 4

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

    def agree(self, seconds: tuple[float, ...]) -> None:
        """Choose the collective of an exchange by the `seconds` of all ranks, before its buckets start."""
        if self._choice is None or not all(seconds):
            return
        settled = self._choice.settled
        self._choice.record(max(seconds))
        self.current = self._choice.current
        if settled and not self._choice.settled:
            self._log(f"{self._choice.reason}: trying the others")
        elif self._choice.settled and not settled:
            self._log(f"{self.current} from now on ({self._choice.reason})")

    def close(self) -> None:
        """Disconnect together with all ranks."""
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()

    def _log(self, text: str) -> None:
        if self.transport.rank == 0:
            log.info("collective: %s", text)
