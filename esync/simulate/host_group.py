"""Memory that the workers of a modelled host share to exchange as one; see `exchange.host_group`.

Waiting for the table takes no polls: a waiting worker resumes when it changes.
"""

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from ..exchange.host_group import HostMemoryPlan
from ..exchange.keystores.memory_host_group import MemoryHost, MemoryHostGroup
from .engine import SimulationEngine


class VirtualHost(MemoryHost):
    """The memory of one host.

    Args:
        engine: the simulation's engine.
        ranks: ranks of the workers on this host.
        max_size: largest number of workers on a host.
        poke: called when the table has changed, to wake workers that wait for the servers.
    """

    def __init__(
        self, engine: SimulationEngine, ranks: tuple[int, ...], max_size: int, poke: Callable[[], object]
    ) -> None:
        super().__init__(ranks, max_size, self._wake)
        self._engine, self._poke = engine, poke
        self._waiting: list[Callable[[Any], None]] = []

    def wait(self, rank: int) -> None:
        """Block the running task until the table changes."""
        self._waiting.append(self._engine.waker(f"another worker of its host (worker {rank})"))
        self._engine.pause()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            self._engine.call_at(self._engine.now, wake, None)
        self._poke()


class VirtualHostGroup(MemoryHostGroup):
    """A worker's part of a `VirtualHost`.

    Args:
        engine: the simulation's engine.
        host: the host's memory.
        rank: the worker's slot.
        process: unique number of the worker's process.
        seconds: seconds that a worker needs to read or write one value.
    """

    def __init__(self, engine: SimulationEngine, host: VirtualHost, rank: int, process: int, seconds: float) -> None:
        def wait(changed: Callable[[], bool], _: float) -> None:
            engine.settle()
            if not changed():
                host.wait(rank)

        super().__init__(
            host, rank, process, engine.settle, wait, lambda elements: engine.pass_time(seconds * elements)
        )

    @override
    def join(self, plan: HostMemoryPlan) -> bool:
        self._pause()
        return super().join(plan)

    @override
    def leave(self) -> None:
        self._pause()
        super().leave()
