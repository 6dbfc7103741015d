"""Host groups in the memory of one process: for tests, and as the base of the simulator's.

See `host_group`. The workers of a host share a `MemoryHost`; each has a `MemoryHostGroup`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from typing_extensions import override

from ..host_group import HostGroup, HostMemoryPlan


class MemoryHost:
    """The memory of one host, which is freed with the last worker.

    Args:
        ranks: of the workers of this host in the description.
        max_size: the most workers on any host.
        changed: called when the table has changed, or when a worker is gone.

    Attributes:
        living: rank → number of the process that holds it.
        changes: number of changes of the table so far.
    """

    def __init__(self, ranks: tuple[int, ...], max_size: int, changed: Callable[[], object] = lambda: None) -> None:
        self.ranks, self.max_size = ranks, max_size
        self.living: dict[int, int] = {}
        self.changes = 0
        self._changed = changed

    def open(self, plan: HostMemoryPlan) -> None:
        """Create the memory, unless it exists."""
        if not self.living:
            self.table = np.zeros((), plan.table)
            self.residuals = [np.zeros(plan.residual, np.float32) for _ in range(2)]
            self.answers = [np.zeros(size, np.float32) for size in plan.answers]
            self.contributions = {
                (rank, name): np.zeros(size, np.float32)
                for rank in self.ranks
                for name, size in plan.contributions.items()
            }

    def change(self, table: np.ndarray) -> None:
        """Replace the table."""
        if table.tobytes() != self.table.tobytes():
            self.table[...] = table
            self._note_change()

    def end(self, process: int) -> None:
        """Remove a process that is gone."""
        for rank in [rank for rank, holder in self.living.items() if holder == process]:
            del self.living[rank]
            self._note_change()

    def _note_change(self) -> None:
        self.changes += 1
        self._changed()


class MemoryHostGroup(HostGroup):
    """The shared memory of a `MemoryHost`, as one of its workers uses it.

    Args:
        host: of the worker.
        rank: of the worker.
        process: unique number of the process.
        pause: called before and after each access to the table, to let other workers run.
        wait: waits until a function returns True, or for that many seconds.
        moved: see `HostGroup.moved`.
    """

    def __init__(
        self,
        host: MemoryHost,
        rank: int,
        process: int,
        pause: Callable[[], object] = lambda: None,
        wait: Callable[[Callable[[], bool], float], object] = lambda ready, seconds: None,
        moved: Callable[[int], object] = lambda elements: None,
    ) -> None:
        self.rank, self.ranks, self.max_size = rank, host.ranks, host.max_size
        self._host, self._process = host, process
        self._pause, self._wait, self._moved = pause, wait, moved

    def join(self, plan: HostMemoryPlan) -> bool:
        """See `HostGroup.join`; False if another process holds this rank."""
        if self.rank in self._host.living:
            return False
        self._host.open(plan)
        self._host.living[self.rank] = self._process
        return True

    @contextmanager
    @override
    def locked(self) -> Iterator[np.ndarray]:
        self._pause()
        table = self._host.table.copy()
        yield table
        self._host.change(table)
        self._pause()

    @override
    def alive(self, rank: int) -> bool:
        return rank in self._host.living

    @override
    def contribution(self, rank: int, vector: str) -> np.ndarray:
        return self._host.contributions[rank, vector]

    @override
    def residual(self, which: int) -> np.ndarray:
        return self._host.residuals[which]

    @override
    def answer(self, server: int) -> np.ndarray:
        return self._host.answers[server]

    @override
    def wait(self, seconds: float) -> None:
        before = self._host.changes
        self._wait(lambda: self._host.changes != before, seconds)

    @override
    def moved(self, elements: int) -> None:
        self._moved(elements)

    @override
    def leave(self) -> None:
        self._host.end(self._process)
