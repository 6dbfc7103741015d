"""Leads the trainer of one worker to servers in memory."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from esync.exchange import Exchange, Specification
from esync.exchange.protocol.client import ParameterServerExchange
from esync.runtime.batch_sizes import StepTime
from esync.runtime.device import Device
from esync.runtime.phase_timer import PhaseTimer

from . import scripted_world
from .memory_cluster import MemoryStore


class SteppedDevice(Device):
    """A device on which time passes by the iteration.

    Args:
        store: of the worker.
        step_time: seconds of an iteration.
        jitter: the most by which an iteration differs, as a share of them.
        chance: draws that.
    """

    def __init__(
        self, store: MemoryStore, step_time: float = 0.0, jitter: float = 0.0, chance: random.Random | None = None
    ) -> None:
        self.now, self.sleep = store.now, store.sleep
        self._step_time, self._jitter, self._chance = step_time, jitter, chance or random.Random(0)

    def begin_run(self, elapsed: float) -> None:
        """See `Device.begin_run`."""

    def begin_iteration(self) -> None:
        """See `Device.begin_iteration`."""

    def end_iteration(self) -> float:
        """See `Device.end_iteration`."""
        seconds = self._step_time * (1 + self._chance.uniform(-self._jitter, self._jitter))
        self.sleep(seconds)
        return seconds


class MemoryWorld:
    """What an algorithm sees of its worker; see `algorithms.context.World`.

    Args:
        way: to the servers: a store, or a function that makes the exchange of a specification.
        device: of the worker; None: one whose iterations take two seconds of a clock of its own.
        questions: makes the connection to the state server, given whether answers are waited for.
    """

    step_times: Sequence[StepTime] = ()

    def __init__(
        self,
        way: MemoryStore | Callable[[Specification], Exchange],
        device: Any = None,
        questions: Callable[[bool], Any] | None = None,
    ) -> None:
        self.way, self._questions = way, questions
        self.device = device or scripted_world.Device()
        self.recorder = PhaseTimer(self.device.now)

    def exchange(self, specification: Specification) -> Exchange:
        """See `World.exchange`."""
        if isinstance(self.way, MemoryStore):
            return ParameterServerExchange(specification, self.way)
        return self.way(specification)

    def coordination(self, address: object, rank: int, job: object = "", delayed: bool = False) -> Any:
        """See `World.coordination`; there is one state server, with one job."""
        assert self._questions is not None
        return self._questions(delayed)
