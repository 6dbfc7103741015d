"""Simulated interfaces of one worker; see `algorithms.context.World`."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from .. import config
from ..coordination import Coordination
from ..exchange import Exchange, Specification
from ..runtime.device import Device
from ..runtime.phase_timer import PhaseTimer
from .cluster_state import ClusterState
from .collective import SharedCollectiveState, SimulatedCollective
from .coordination import DelayedCoordination, SimulatedCoordination, SimulatedStateServer
from .devices import DeviceModel, SimulatedDevice
from .engine import GreenletTask, SimulationEngine
from .store import VirtualStore


@dataclass(frozen=True)
class WorkerModel:
    """Model of one worker.

    Attributes:
        rank: its slot.
        host: the machine that it runs on.
        folder: of its logs below its host's.
        device: how fast it is.
        crashes: (seconds at which its machine crashes, seconds until another one takes over its
            slot, more than 0), in any order; those of a time at which nobody holds the slot are
            none.
    """

    rank: int
    host: str
    folder: str
    device: DeviceModel
    crashes: tuple[tuple[float, float], ...] = ()

    @property
    def name(self) -> str:
        """Host and device."""
        return f"{self.host}/{self.folder}"


class NoRecorder(PhaseTimer):
    """Keeps nothing but the samples, where no round is logged."""

    _NOTHING = nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """Nothing is measured."""
        return self._NOTHING

    def add(self, name: str, seconds: float) -> None:
        """Not kept."""

    def add_iteration(self, seconds: float) -> None:
        """Not kept."""

    def next_iteration(self) -> None:
        """Not kept."""

    def take(self) -> dict[str, Any]:
        """Nothing."""
        self.samples = 0
        return {}


class SimulatedWorld:
    """Makes the simulated exchange, coordination and device of one worker.

    Args:
        engine: whose time.
        side: servers and network.
        state_server: None where the mode needs none.
        worker: which one this is.
        seed: of its device's jitter.
        life: 0; 1 for the one that takes over its slot after a crash, and so on.
        leases: whether it keeps leases.
        recorded: whether the phases of its rounds are kept.

    Attributes:
        simulated: the device, with what it has added up.
        connections: to the servers, with the bytes that went over them.
        questions: to the state server.
        helpers: tasks of this worker besides its own.
        collective: what all workers have in common where they exchange without a server.
    """

    collective: SharedCollectiveState | None = None

    def __init__(
        self,
        engine: SimulationEngine,
        side: ClusterState,
        state_server: SimulatedStateServer,
        worker: WorkerModel,
        seed: int,
        life: int = 0,
        leases: bool = True,
        recorded: bool = True,
    ) -> None:
        self.simulated = SimulatedDevice(engine, worker.device, (seed, worker.rank, life))
        self.device: Device = self.simulated
        self.recorder = (PhaseTimer if recorded else NoRecorder)(self.device.now)
        self.connections: list[VirtualStore | SimulatedCollective] = []
        self.questions: list[SimulatedCoordination] = []
        self.helpers: list[GreenletTask] = []
        self._taken = (0, 0)
        self._engine, self._side, self._state_server = engine, side, state_server
        self._worker, self._leases = worker, leases

    def exchange(self, specification: Specification) -> Exchange:
        """Connect to the modelled servers, or to the other workers."""
        straggler = self.simulated.straggler
        if self.collective is not None:
            line = SimulatedCollective(specification, self.collective, self._worker.rank, straggler)
            self.connections.append(line)
            return line
        store = VirtualStore(self._side, self._worker.host, self._worker.rank, self, straggler)
        self.connections.append(store)
        return self._side.exchange(specification, store)

    def coordination(
        self, address: str | None, rank: int, job: str = config.JOB, delayed: bool = False
    ) -> Coordination:
        """Connect to the modelled state server; there is only one, with one job."""
        client = SimulatedCoordination(
            self._state_server, self._engine, self._side.network, self._worker.host, rank, self._leases
        )
        self.questions.append(client)
        if not delayed:
            return client
        background = DelayedCoordination(client, self._engine, f"worker {rank} ({self._worker.name})")
        self.helpers.append(background.task)
        return background

    @property
    def tasks(self) -> list[GreenletTask]:
        """What goes on beside this worker's own task."""
        stores = [each for each in self.connections if isinstance(each, VirtualStore)]
        return [*self.helpers, *(each.task for store in stores for each in store.tasks)]

    def take(self) -> tuple[int, int]:
        """Bytes sent and received since the last call; takes the place of `membership.connections.TrafficMeter`."""
        totals = self.traffic
        before, self._taken = self._taken, totals
        return totals[0] - before[0], totals[1] - before[1]

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far."""
        lines: list[VirtualStore | SimulatedCollective | SimulatedCoordination] = [
            *self.connections,
            *self.questions,
        ]
        return round(sum(each.sent for each in lines)), round(sum(each.received for each in lines))
