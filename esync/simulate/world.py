"""Simulated interfaces of one worker; see `algorithms.context.World`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from .. import config
from ..coordination import Coordination
from ..exchange import Exchange, Specification
from ..exchange.protocol.client import ParameterServerExchange
from ..runtime.batch_sizes import StepTime
from ..runtime.device import Device
from ..runtime.phase_timer import PhaseTimer
from .cluster_state import ClusterState
from .collective import SharedCollectiveState, SimulatedCollective
from .coordination import SimulatedCoordination, SimulatedDelayedCoordination, SimulatedStateServer
from .devices import DeviceModel, SimulatedDevice
from .engine import GreenletTask, SimulationEngine
from .store import VirtualStore


@dataclass(frozen=True)
class WorkerModel:
    """Model of one worker.

    Attributes:
        rank: its slot.
        host: the machine that it runs on.
        folder: folder of its logs below its host's.
        device: the model of its device.
        crashes: pairs (second at which its machine crashes, seconds > 0 until a replacement takes
            over its slot), in any order. A crash has no effect while the slot is empty.
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
    """Records the number of samples only; used if no rounds are logged."""

    _NOTHING = nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """Return a context that measures nothing."""
        return self._NOTHING

    def add(self, name: str, seconds: float) -> None:
        """Discard a phase's time."""

    def add_iteration(self, seconds: float) -> None:
        """Discard an iteration's time."""

    def next_iteration(self) -> None:
        """Do nothing: iterations are not recorded."""

    def log(self, name: str, value: float) -> None:
        """Discard a logged number."""

    def take(self) -> dict[str, Any]:
        """Return an empty record, and reset the count of samples."""
        self.samples = 0
        return {}


class SimulatedWorld:
    """Creates the simulated exchange, coordination and device of one worker.

    Args:
        engine: the simulation's engine.
        state: the servers and the network.
        state_server: the state server.
        worker: the worker's model.
        seed: seed of its device's jitter.
        life: 0 for the first worker in its slot, 1 for its first replacement after a crash, …
        leases: whether it uses leases.
        recorded: whether to record the phases of its rounds.

    Attributes:
        simulated: its device, with the totals.
        connections: its connections to the servers, with their numbers of bytes.
        questions: its connections to the state server.
        helpers: further tasks of this worker.
        collective: state that all workers share in a collective; None with servers.
        step_times: see `algorithms.context.World`.
    """

    collective: SharedCollectiveState | None = None
    step_times: Sequence[StepTime] = ()

    def __init__(
        self,
        engine: SimulationEngine,
        state: ClusterState,
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
        self._read = (0, 0)
        self._engine, self._state, self._state_server = engine, state, state_server
        self._worker, self._leases = worker, leases

    def exchange(self, specification: Specification) -> Exchange:
        """Connect to the modelled servers, or to the other workers."""
        straggler = self.simulated.straggler
        if self.collective is not None:
            line = SimulatedCollective(specification, self.collective, self._worker.rank, straggler)
            self.connections.append(line)
            return line
        store = VirtualStore(self._state, self._worker.host, self._worker.rank, self, straggler)
        self.connections.append(store)
        return ParameterServerExchange(specification, store, host_group=self._state.host_group(store.rank, store.nonce))

    @property
    def per_host(self) -> int:
        """The largest number of workers on a host that exchange as one; 1: each by itself."""
        return self._state.per_host

    def crash(self) -> None:
        """Record that this worker's machine has crashed, also for the other workers of its host."""
        self.simulated.crash()
        if (host := self._state.hosts.get(self._worker.rank)) is not None:
            for store in self.connections:
                if isinstance(store, VirtualStore):
                    host.end(store.nonce)

    def coordination(
        self, address: str | None, rank: int, job: str = config.JOB, delayed: bool = False
    ) -> Coordination:
        """Connect to the modelled state server; there is only one, with one job."""
        client = SimulatedCoordination(
            self._state_server, self._engine, self._state.network, self._worker.host, rank, self._leases
        )
        self.questions.append(client)
        if not delayed:
            return client
        background = SimulatedDelayedCoordination(client, self._engine, f"worker {rank} ({self._worker.name})")
        self.helpers.append(background.task)
        return background

    @property
    def tasks(self) -> list[GreenletTask]:
        """Further tasks of this worker."""
        stores = [connection for connection in self.connections if isinstance(connection, VirtualStore)]
        return [*self.helpers, *(task.task for store in stores for task in store.tasks)]

    def read_delta(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call, like `membership.connections.TrafficMeter`."""
        totals = self.traffic
        before, self._read = self._read, totals
        return totals[0] - before[0], totals[1] - before[1]

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, computed from the sizes of the modelled messages."""
        scale = self._state.network.scale
        sent = scale * sum(connection.sent for connection in self.connections) + sum(
            question.sent for question in self.questions
        )
        received = scale * sum(connection.received for connection in self.connections)
        received += sum(question.received for question in self.questions)
        return round(sent), round(received)
