"""The memory that worker processes of one host share; see `host_group`.

The first process creates it, and the others find it by its name (`runtime.memory_file`). It is freed when
the last process that has it ends. Each worker holds a lock while it lives, so the others know whether it
is alive. Linux only.

The memory starts with the number of changes of the table, followed by two copies of the table. All
workers divide it in the same way, because the servers have compared their handshakes. The parity of
the number selects the valid copy. A change is written to the other copy, which becomes valid when the
number is incremented. So a worker that is killed before that has changed nothing.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from typing_extensions import override

from ... import config
from ...runtime.memory_file import MemoryFile, NameTakenError, SharedMemoryError, exclusive
from ..base import ExchangeError
from ..host_group import HostGroup, HostMemoryPlan

log = logging.getLogger(__name__)

#: Alignment in bytes: of the tables (a cache line), and of the arrays (a page).
_LINE, _PAGE = 64, 4096
#: Seconds to wait while another worker joins.
_PATIENCE = 10.0
#: Bytes that are locked: for the table, and while the first worker of the host lives; those of the
#: other workers follow.
_TABLE, _ALIVE = 0, 1
#: Pauses while waiting for a change of the table, in seconds: the first, its growth, the longest.
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.0002, 1.5, 0.002


class SharedHostGroup(HostGroup):
    """The shared memory of worker processes of one host.

    Args:
        token: identifies the group, by job and host.
        rank: of this worker.
        ranks: of all workers of this host, in ascending order.
        max_size: the most workers on any host of the job.
        patience: seconds to wait for a process that keeps the table locked, because it was
            suspended.
    """

    def __init__(
        self, token: str, rank: int, ranks: Sequence[int], max_size: int, patience: float = config.ROUND_TIMEOUT
    ) -> None:
        if rank not in ranks:
            raise ValueError(f"worker {rank} is not among those of its host: {', '.join(map(str, ranks))}")
        self.rank, self.ranks, self.max_size = rank, tuple(ranks), max_size
        self._token, self._patience = token, patience
        self._file: MemoryFile | None = None
        self._arrays: dict[tuple[Any, ...], np.ndarray] = {}
        self._tables: list[np.ndarray] = []
        self._seen = 0  # number of changes of the table when it was last locked

    @override
    def join(self, plan: HostMemoryPlan) -> bool:
        parts, size = _layout(plan, self.ranks)
        name = f"esync-{self._token}"
        try:
            with exclusive(name, _PATIENCE):
                file = MemoryFile.find(name)
                if file is None:
                    file = MemoryFile.create(name, size)
                held = file.hold(self._lock_of(self.rank))
        except NameTakenError as error:
            log.warning("%s; worker %d exchanges by itself", error, self.rank)
            return False
        except SharedMemoryError as error:
            raise ExchangeError(
                f"{error}; the {len(self.ranks)} workers of this host need that much in common to exchange as one: "
                "leave per_host out of the description, or place fewer workers on this host"
            ) from None
        if not held:
            log.warning(
                "process %d is worker %d of this host, and may hang; this one exchanges by itself",
                file.holder(self._lock_of(self.rank)),
                self.rank,
            )
            file.close()
            return False
        self._file = file
        self._changes: np.ndarray = np.ndarray((1,), np.int64, file.memory)
        self._tables = [
            np.ndarray((plan.table.itemsize,), np.uint8, file.memory, parts["table", which][0]) for which in (0, 1)
        ]
        self._type = plan.table
        self._arrays = {
            name: np.ndarray((elements,), np.float32, file.memory, start)
            for name, (start, elements) in parts.items()
            if name[0] != "table"
        }
        return True

    @contextmanager
    @override
    def locked(self) -> Iterator[np.ndarray]:
        begun, warned = time.monotonic(), False

        def check(holder: int) -> None:
            nonlocal warned
            seconds = time.monotonic() - begun
            if seconds > self._patience:
                raise ExchangeError(
                    f"process {holder} of this host has kept what the workers share for {seconds:.0f} s, as if it had "
                    "been stopped: end it, or let it go on"
                )
            if seconds > config.ANNOUNCE_AFTER and not warned:
                warned = True
                log.warning("waiting for process %d of this host, which has what the workers share", holder)

        file = self._joined()
        with file.locked(_TABLE, check):
            changes = int(self._changes[0])
            before = self._tables[changes % 2].tobytes()
            table: np.ndarray = np.ndarray((), self._type, bytearray(before))
            yield table
            if (after := table.tobytes()) != before:
                changes += 1
                self._tables[changes % 2][:] = np.frombuffer(after, np.uint8)
                self._changes[0] = changes
            self._seen = changes

    @override
    def alive(self, rank: int) -> bool:
        return rank == self.rank or self._joined().holder(self._lock_of(rank)) != 0

    @override
    def contribution(self, rank: int, vector: str) -> np.ndarray:
        return self._arrays["contribution", rank, vector]

    @override
    def residual(self, which: int) -> np.ndarray:
        return self._arrays["residual", which]

    @override
    def answer(self, server: int) -> np.ndarray:
        return self._arrays["answer", server]

    @override
    def wait(self, seconds: float) -> None:
        limit, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while self._changes[0] == self._seen and (remaining := limit - time.monotonic()) > 0:
            time.sleep(min(pause, remaining))
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)

    def moved(self, elements: int) -> None:
        """Do nothing; see `HostGroup.moved`."""

    @override
    def leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._arrays, self._tables = {}, []
            del self._changes

    def _joined(self) -> MemoryFile:
        if self._file is None:
            raise RuntimeError("this worker does not take part in what its host shares")
        return self._file

    def _lock_of(self, rank: int) -> int:
        return _ALIVE + self.ranks.index(rank)


def _layout(plan: HostMemoryPlan, ranks: Sequence[int]) -> tuple[Mapping[tuple[Any, ...], tuple[int, int]], int]:
    """Divide the memory into the tables and the arrays.

    Returns:
        Name of each part → its first byte and its number of elements (bytes of a table, float32
        values of an array); and the size of the memory in bytes.
    """
    parts: dict[tuple[Any, ...], tuple[int, int]] = {}
    size = _LINE
    for which in (0, 1):
        parts["table", which] = size, plan.table.itemsize
        size = _rounded(size + plan.table.itemsize, _LINE)
    arrays: dict[tuple[Any, ...], int] = {
        ("contribution", rank, name): elements for rank in ranks for name, elements in plan.contributions.items()
    }
    arrays |= {("residual", which): plan.residual for which in (0, 1)}
    arrays |= {("answer", server): elements for server, elements in enumerate(plan.answers)}
    for name, elements in arrays.items():
        size = _rounded(size, _PAGE)
        parts[name] = size, elements
        size += 4 * elements
    return parts, _rounded(size, _PAGE)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
