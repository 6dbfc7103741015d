"""What the workers of a modelled host share where they exchange as one; see `exchange.host_group`.

Waiting for the table costs no polls: whoever waits goes on when it changes.
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
        ranks: of the workers there.
        most: the most workers on any host.
        poke: called when the table has changed, for those who wait for the servers.
    """

    def __init__(self, engine: SimulationEngine, ranks: tuple[int, ...], most: int, poke: Callable[[], object]) -> None:
        super().__init__(ranks, most, self._wake)
        self._engine, self._poke = engine, poke
        self._waiting: list[Callable[[Any], None]] = []

    def wait(self, rank: int) -> None:
        """Have the running task wait until the table changes."""
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
        host: where it runs.
        rank: its slot.
        process: its number, the same for no other process.
        seconds: that a worker needs to read or to write one value.
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
