"""Simulate a cluster event by event: every worker runs the worker program's own loop in virtual time."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .. import config
from ..arguments import choose_algorithm
from ..exchange.protocol.round_state import RoundState
from ..runtime.errors import ExpectedError
from ..runtime.progress import ProgressReporter
from ..training.loop import DivergedError, train
from ..training.round_callbacks import LogClock, PeriodicEvaluation, RoundCallbacks
from ..training.round_log import RoundLog
from ..training.worker_setup import make_callbacks, make_limits, run_facts
from .cluster import ClusterModel
from .cluster_state import ClusterState
from .collective import SharedCollectiveState
from .coordination import SimulatedStateServer
from .engine import GreenletTask, SimulationEngine, TimedFuture
from .metrics import SimulationMetrics, WorkerMetrics
from .network import Network
from .servers import ServerNode
from .timing import SIZES, TimedIteration, TimedTrainer
from .world import SimulatedWorld, WorkerModel


class Values(Protocol):
    """Weights, or statistics; see `replica.FlatArrays`."""

    size: int


class SimulatedEvaluator:
    """Evaluates one model at a time, as `evaluate.EvaluationProcess` does.

    Args:
        engine: whose time.
        lasting: seconds of virtual time that an evaluation takes.
        accuracy: works it out for (weights, statistics, every image or some), values opened by the
            caller.
    """

    def __init__(
        self, engine: SimulationEngine, lasting: float, accuracy: Callable[[Values, Values, bool], float]
    ) -> None:
        self._engine, self._lasting, self._accuracy = engine, lasting, accuracy
        self._current: TimedFuture[float] | None = None

    def start(self, weights: Values, statistics: Values, every_image: bool = False) -> TimedFuture[float] | None:
        """Evaluate these values as they are now; None while an evaluation is under way."""
        if self._current is not None and not self._current.done():
            return None
        accuracy = self._accuracy(weights, statistics, every_image)
        self._current = TimedFuture(self._engine, self._engine.now + self._lasting, accuracy)
        return self._current

    def close(self) -> None:
        """Do nothing."""


class Numerics(Protocol):
    """What a worker computes with; see `gradients.GradientNumerics` and `TimingNumerics`.

    Attributes:
        samples: size of the training set.
        evaluates: whether it has a method `accuracy` of (weights, statistics, every image or some).
        wire: sizes of the vectors of the network whose bytes go over the wire, where the model that
            is exchanged only stands for it.
    """

    samples: int
    evaluates: bool
    wire: Mapping[str, int] | None

    def start(self, rank: int, world: SimulatedWorld) -> tuple[Any, Any]:
        """Make a new trainer and its iterations."""


class TimingNumerics:
    """Numerics of `--numerics none`: no gradients are computed.

    Args:
        options: the worker's flags.
        samples: size of the training set that epochs are counted by.
    """

    evaluates = False

    def __init__(self, options: argparse.Namespace, samples: int) -> None:
        if options.algorithm.needs_gradients:
            raise ExpectedError(
                f"--numerics none computes no gradients, so mode {options.mode} has nothing to choose from; use "
                "--numerics real"
            )
        self._options, self.samples = options, samples
        self.wire: Mapping[str, int] | None = SIZES[options.network]

    def start(self, rank: int, world: SimulatedWorld) -> tuple[TimedTrainer, TimedIteration]:
        """See `Numerics`."""
        limits = make_limits(self._options, self.samples)
        trainer = TimedTrainer(choose_algorithm(self._options), world, limits, world.simulated.step_time)
        return trainer, TimedIteration(self._options.batch_size)


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation: of which round's weights, from what time, and what came out."""

    round: int
    time: float
    accuracy: float


@dataclass
class Simulation:
    """A modelled cluster and its training.

    Args:
        cluster: the models.
        options: the worker's flags, parsed.
        numerics: what the workers compute with.
        log_dir: where each worker's rounds are written, {log_dir}/{host}/{device}; None: nowhere.
        watch: called after each worker's rounds, with (simulation, trainer).
        leases: whether workers keep leases on the state server's answers.
        bucket_elements: the most values in one message.
        delay: seconds that a message takes besides; see `network.Network`.

    Attributes:
        engine: virtual time.
        workers: what was added up, by rank.
        accuracies: in the order of their times.
    """

    cluster: ClusterModel
    options: argparse.Namespace
    numerics: Numerics
    log_dir: Path | None = None
    watch: Callable[["Simulation", Any], None] | None = None
    leases: bool = True
    bucket_elements: int = config.BUCKET_ELEMENTS
    delay: Callable[[], float] | None = None
    accuracies: list[EvaluationRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = SimulationEngine()
        hosts = [server.host for server in self.cluster.servers]
        self.network = Network(self.engine, self.cluster.link, hosts, self.delay)
        nodes = [ServerNode(self.engine, model, shard) for shard, model in enumerate(self.cluster.servers)]
        self.side = ClusterState(
            self.engine, self.network, nodes, len(self.cluster.workers), self.numerics.wire, self.bucket_elements
        )
        self.collective: SharedCollectiveState | None = None
        if self.options.collective != "ps":
            places = [worker.host for worker in self.cluster.workers]
            name = self.options.collective
            self.collective = SharedCollectiveState(self.engine, self.network, places, name, self.numerics.wire)
        self.state_server = SimulatedStateServer(self.engine, self.cluster.state_server)
        self.workers = [WorkerMetrics(worker) for worker in self.cluster.workers]
        self._keepers: dict[int, RoundCallbacks] = {}

    @property
    def now(self) -> float:
        """Virtual time."""
        return self.engine.now

    @property
    def events(self) -> int:
        """How many there have been."""
        return self.engine.events

    @property
    def rounds(self) -> int:
        """Rounds completed, as server 0 counts them (mode local: as the worker does)."""
        return self.workers[0].rounds if self._books is None else self._books.round

    @property
    def samples(self) -> int:
        """Of all workers, in those rounds."""
        if self._books is not None:
            return self._books.samples
        return self.workers[0].iterations * self.options.batch_size

    @property
    def samples_together(self) -> int:
        """Those of `samples` whose commits were used together, as rounds."""
        return 0 if self._books is None else self._books.samples_together

    @property
    def _books(self) -> RoundState | None:
        """Of server 0, or of all ranks of a collective; None where nobody exchanges."""
        if self.collective is not None:
            return self.collective.round_state
        return self.side.nodes[0].round_state if self.side.here else None

    def run(self) -> None:
        """Run it to its end.

        Raises:
            DeadlockError: the workers wait for one another for ever.
            ExpectedError: whatever ends a worker in the real program, too.
        """
        try:
            for sums in self.workers:
                self._spawn(sums)
            self.engine.run()
        finally:
            for keeper in self._keepers.values():
                keeper.close()

    # --- the workers ------------------------------------------------------------------------------

    def _spawn(self, sums: WorkerMetrics, delay: float = 0.0) -> None:
        worker, life = sums.worker, len(sums.worlds)
        recorded = self.log_dir is not None or self.numerics.evaluates
        world = SimulatedWorld(
            self.engine, self.side, self.state_server, worker, self.options.seed, life, self.leases, recorded
        )
        world.collective = self.collective
        sums.worlds.append(world)
        task = self.engine.spawn(f"worker {worker.rank} ({worker.name})", lambda: self._live(sums, world), delay)
        begins = self.engine.now + delay
        if crash := min((each for each in worker.crashes if each[0] >= begins), default=None):
            at, restart_after = crash
            self.engine.call_at(at, self._crash, sums, world, task, restart_after)

    def _crash(self, sums: WorkerMetrics, world: SimulatedWorld, task: GreenletTask, restart_after: float) -> None:
        if task.done:
            return
        for each in (task, *world.tasks):
            self.engine.crash(each)
        self.network.drop(world)
        self._spawn(sums, restart_after)

    def _live(self, sums: WorkerMetrics, world: SimulatedWorld) -> None:
        """What the worker program does, from its start to its end."""
        rank = sums.worker.rank
        try:
            trainer, iteration = self.numerics.start(rank, world)
            trainer.start()
            if len(sums.worlds) == 1:
                sums.began = self.engine.now
            tally = SimulationMetrics(sums, lambda: self.now, self._keeper(sums, trainer), self._watch_rounds)
            try:
                train(trainer, iteration, tally)
            except DivergedError:
                for keeper in self._keepers.values():
                    keeper.diverged()
                raise
            trainer.close()
        finally:
            sums.left = self.engine.now

    def _watch_rounds(self, trainer: Any) -> None:
        if self.watch is not None:
            self.watch(self, trainer)

    # --- logs and evaluation ----------------------------------------------------------------------

    def _keeper(self, sums: WorkerMetrics, trainer: Any) -> RoundCallbacks | None:
        """Writes this worker's logs, in all its lives, and evaluates on rank 0."""
        worker, options = sums.worker, self.options
        if worker.rank in self._keepers:
            return self._keepers[worker.rank]
        evaluations = None
        if worker.rank == 0 and self.numerics.evaluates and not options.no_evaluation:
            evaluator = SimulatedEvaluator(self.engine, self.cluster.evaluation_time, self._evaluate)
            evaluations = PeriodicEvaluation(evaluator, options.eval_duration, options.target_accuracy)
        if self.log_dir is None and evaluations is None:
            return None
        logs = None
        if self.log_dir is not None:
            logs = RoundLog(self.log_dir / worker.host, worker.folder, options.overwrite)
        reporter = ProgressReporter(quiet=True, machine=False)
        keeper = RoundCallbacks(
            make_callbacks(options, worker.rank, reporter, logs),
            self._facts(worker, trainer),
            LogClock(lambda: self.now),
            evaluations,
            sums,
        )
        self._keepers[worker.rank] = keeper
        return keeper

    def _evaluate(self, weights: Any, statistics: Any, every_image: bool) -> float:
        accuracy = self.numerics.accuracy(weights, statistics, every_image)  # type: ignore[attr-defined]
        sums = self.workers[0]
        self.accuracies.append(EvaluationRecord(sums.rounds, sums.ended - sums.began, accuracy))
        return float(accuracy)

    def _facts(self, worker: WorkerModel, trainer: Any) -> dict[str, Any]:
        """What run.json says, as the worker program writes it; nothing in it depends on when or where this runs."""
        return {
            **run_facts(self.options, trainer),
            "host": worker.host,
            "device": worker.folder,
            "step_time": worker.device.mean,
            "started": 0.0,
            "simulated": True,
        }
