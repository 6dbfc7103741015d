"""A worker that runs a real algorithm, with what the algorithm sees of the world."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from esync.algorithms import AlgorithmContext, CheckpointHooks, Hyper
from esync.arguments import choose_algorithm
from esync.checkpoints.checkpoints import Checkpoints
from esync.coordination import Coordination, ExchangeDecision, JobSettings
from esync.coordination.coordinator import Coordinator, RefusedError
from esync.coordination.straggler_policies import PolicyDirective
from esync.exchange import STATISTICS, WEIGHTS, Flat, Specification
from esync.exchange.protocol.resume_negotiation import ResumeState
from esync.runtime.device import Device
from esync.runtime.futures import Future, Handle
from esync.simulate.coordination import StateServerJob
from esync.simulate.timing import TimedReplica
from esync.training.worker_setup import make_limits

from ..support.memory_cluster import MemoryStore, Transmission
from ..support.memory_world import MemoryWorld, SteppedDevice
from ..support.vectors import TENSORS, Held, gradient, values
from .options import BATCH, parse
from .processes import NO_SERVER, Cluster, JobOverError
from .schedule import Schedule
from .worker import RATE, Checkpointed, WatchedExchange

T = TypeVar("T")

#: Of the state server's queue.
QUESTIONS = -1000


class StateServer(StateServerJob):
    """The job, which a worker 0 that dies before it has begun it takes with it."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the job."""
        if self._coordinator is None:
            raise JobOverError("the state server knows of no job")
        return self._coordinator


class Answer(Future[T]):
    """The state server's answer to one call."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def _await(self) -> None:
        self._cluster.wait(self.done)


class Questions(Coordination):
    """One worker's calls of the state server: each is a step, and they stay in order.

    Args:
        cluster: has the time, and what is under way.
        store: of the worker.
        server: the state server.
        delayed: whether answers are not waited for.
        leases: whether to use leases.
    """

    def __init__(self, cluster: Cluster, store: MemoryStore, server: StateServer, delayed: bool, leases: bool) -> None:
        self.round, self._round_trip = 1, 0.0
        self._cluster, self._store, self._server = cluster, store, server
        self._delayed, self._leases = delayed, leases

    @property
    def round_trip(self) -> float:
        """See `Coordination`."""
        return self._round_trip

    def init(self, settings: JobSettings) -> None:
        """See `Coordination.init`."""
        self._call("the beginning", lambda: self._server.init(settings)).wait()

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """See `Coordination.ask`."""
        rank, round_, round_trip, start = self._store.rank, self.round, self._round_trip, self._cluster.now

        def answer() -> ExchangeDecision:
            now = self._cluster.now
            self._round_trip = now - start
            return self._server.decide(rank, round_, iteration, capability, now, round_trip, self._leases)

        return self._call("a question", answer)

    def reset(self, round: int, rejoin: bool = False, members: Sequence[int] | None = None, **options: Any) -> None:
        """See `Coordination.reset`."""
        self.round, rank = round, self._store.rank
        self._call(
            "RESET",
            lambda: self._server.coordinator.reset(
                rank, round, self._cluster.now, rejoin=rejoin, members=members, **options
            ),
        )

    def report_steps(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """See `Coordination.report_steps`."""

        def answer() -> PolicyDirective:
            assert self._server.watch is not None
            return self._server.watch.record_steps(self._store.rank, since, steps, seconds)

        return self._call("its seconds", answer)

    def close(self) -> None:
        """See `Coordination.close`."""

    def _call(self, what: str, handle: Callable[[], T]) -> Answer[T]:
        answer, task = Answer[T](self._cluster), self._cluster.task

        def arrive() -> None:
            try:
                answer.complete(handle())
            except RefusedError:
                if not task.killed:  # else it speaks of a round that may be over
                    raise

        self._cluster.put(
            self._store.nonce,
            QUESTIONS,
            Transmission(NO_SERVER, f"{what} of worker {self._store.rank} at the state server", [arrive]),
        )
        if not self._delayed:
            answer.wait()
        return answer


class Model(TimedReplica):
    """The model of a few values, which only exchanges change.

    Args:
        held: its values.
        step: returns what this worker sends next.
    """

    def __init__(self, held: Held, step: Callable[[], Flat]) -> None:
        super().__init__()
        self.gradient = lambda factor: step()  # type: ignore[method-assign]
        self.update = step  # type: ignore[method-assign]
        self._held, self.write, self.add, self.put = held, held.write, held.add, held.put  # type: ignore[method-assign]
        for name, vector in ((WEIGHTS, self.weights), (STATISTICS, self.statistics)):
            vector.values, vector.size = held.vectors[name], held.vectors[name].size
        self.weights.sizes, self.size = TENSORS, self.weights.size
        self.weights.write = self.statistics.write = lambda start, values: None  # type: ignore[attr-defined]

    def add_vectors(self, names: Iterable[str]) -> None:
        """Add vectors as long as the weights."""
        for name in names:
            self._held.add_vector(name, self.size)
            self.further[name] = self.contributions[name] = Flat(self._held.vectors[name])


class ExactCheckpoints(Checkpoints):
    """Checkpoints that show which weights the servers go on with.

    Attributes:
        weights: those of the servers, where a checkpoint has others for the workers.
    """

    weights: Any = None

    def settle(self, rank: int, job: int, resume_at: int, replacement: bool) -> ResumeState | None:
        """See `Checkpoints.settle`."""
        state = super().settle(rank, job, resume_at, replacement)
        self.weights = state.weights if state is not None else None
        return state


class AlgorithmWorker(Checkpointed):
    """One worker process that runs a real algorithm; see `worker.Worker`.

    Args:
        schedule: of the run.
        store: its way to the servers.
        job: what it is part of; see `world.Job`.
    """

    def __init__(self, schedule: Schedule, store: MemoryStore, job: Any) -> None:
        self._schedule, self._store, self._job = schedule, store, job
        self._options = parse(schedule.settings.mode, (*schedule.options, f"--rounds={schedule.rounds}"))
        self._algorithm = choose_algorithm(self._options)
        self.exchange: Any = None
        super().__init__()
        chance = random.Random(f"{schedule.seed} {store.nonce}")
        self.step_time = schedule.step_time(store.rank)
        self.device: Device = SteppedDevice(store, self.step_time, schedule.jitter, chance)
        self.world = MemoryWorld(self.connect, self.device, self.questions)
        self.world.recorder.keep_newest(1)

    def run(self) -> None:
        """Train until the run is over."""
        schedule, algorithm, rank = self._schedule, self.algorithm, self._store.rank
        for name, vector in values(rank).items():
            self._held.write(name, 0, vector)
        samples = schedule.rounds * schedule.workers * BATCH
        checkpoints = None
        if schedule.every:
            checkpoints = ExactCheckpoints(self._job.folder, schedule.every, schedule.keep, resume=True)
            checkpoints.bind(self, {})
        algorithm.start(
            AlgorithmContext(
                replica=Model(self._held, self._step),
                world=self.world,
                hyper=lambda: Hyper(RATE, 0.0, 0.0, 1.0),
                capability=lambda: self.step_time,
                limits=make_limits(self._options, samples),
                agreement=checkpoints.terms if checkpoints is not None else {},
                checkpoints=checkpoints or CheckpointHooks(),
                joined=lambda: self._begin(checkpoints),
            )
        )
        if checkpoints is not None:
            checkpoints.begun()
        self._job.joined(self)
        while not self.finished:
            self._job.iteration(self)
            algorithm.step(BATCH)
            result = algorithm.result
            if algorithm.exchanged and result is not None:
                self.trained += 1
                self._job.exchanged(self, result, self._held)
                if checkpoints is not None:
                    checkpoints.save_if_due()
                if schedule.stop and rank == 0 and result.round >= schedule.stop:
                    algorithm.stop()
        if checkpoints is not None:
            checkpoints.save()
        self._job.finishes(self)
        algorithm.close()

    def _begin(self, checkpoints: ExactCheckpoints | None) -> None:
        """The checkpoint to go on from, if any, has been loaded."""
        if checkpoints is not None:
            checkpoints.track("trained", self)
        self._job.begins(self, self._held, checkpoints.weights if checkpoints is not None else None)

    @property
    def waits(self) -> bool:
        """Whether a state server says when this worker and the others exchange, and then await one another."""
        specification = self.exchange.specification
        together = specification.synchronous and not specification.overlap and not self._schedule.settings.tiered
        asks = self.algorithm.asks_state_server and self._job.state_server.watch is None
        return together and asks

    @property
    def delayed(self) -> bool:
        """Whether answers of the state server are not waited for."""
        return self._options.query_mode == "delayed-ack"

    def connect(self, specification: Specification) -> WatchedExchange:
        """Make the exchange."""
        self.exchange = WatchedExchange(specification, self._store, self._job)
        return self.exchange

    def questions(self, delayed: bool) -> Questions:
        """Connect to the state server."""
        leases = bool(self._schedule.leases)
        return Questions(self._job.cluster, self._store, self._job.state_server, delayed, leases)

    def _step(self) -> Flat:
        """Return what this slot sends in the next exchange."""
        return Flat(gradient(self.rank, self.exchange.sequence + 1, self._schedule.workers))
