"""Simulate a cluster event by event: each worker runs the real training loop in virtual time."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..arguments import choose_algorithm
from ..exchange import Source
from ..exchange.protocol.round_state import RoundState
from ..loggers.tensorboard import EventFile
from ..runtime.errors import ExpectedError
from ..runtime.evaluation_result import EvaluationResult
from ..runtime.progress import ProgressReporter
from ..training.callbacks import make_callbacks
from ..training.loop import DivergedError, train
from ..training.round_callbacks import LogClock, PeriodicEvaluation, RoundCallbacks, average_of
from ..training.round_log import RoundLog
from ..training.run_facts import facts_after_start
from ..training.run_folder import same_below
from ..training.worker_setup import flag_facts, make_limits
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


class SimulatedEvaluator:
    """Evaluates one model at a time, as `evaluation_process.EvaluationProcess` does.

    Args:
        engine: the simulation's engine.
        lasting: seconds of virtual time that an evaluation takes.
        evaluate: evaluates weights and statistics, which the caller has opened, on all images (True)
            or on some.
    """

    def __init__(
        self, engine: SimulationEngine, lasting: float, evaluate: Callable[[Source, Source, bool], EvaluationResult]
    ) -> None:
        self._engine, self._lasting, self._evaluate = engine, lasting, evaluate

    def start(self, weights: Source, statistics: Source, every_sample: bool) -> TimedFuture[EvaluationResult]:
        """Start to evaluate the current values."""
        result = replace(self._evaluate(weights, statistics, every_sample), seconds=self._lasting)
        return TimedFuture(self._engine, self._engine.now + self._lasting, result)

    def close(self) -> None:
        """Do nothing: there is no process to end."""


class Numerics(Protocol):
    """What a worker computes with; see `gradients.GradientNumerics` and `TimingNumerics`.

    Attributes:
        samples: size of the training set.
        data_digest: digest of a user's data set; "" for another one.
        evaluates: whether it has the methods `evaluate` and `unrecognized_classes` of
            `gradients.GradientNumerics`.
        wire: sizes of the modelled vectors if the exchanged model represents a larger one; None
            otherwise.
    """

    samples: int
    data_digest: str
    evaluates: bool
    wire: Mapping[str, int] | None

    def start(self, rank: int, world: SimulatedWorld) -> tuple[Any, Any]:
        """Make a new trainer and its iterations."""


class TimingNumerics:
    """Numerics of `--numerics none`: no gradients are computed.

    Args:
        options: the worker's flags.
        samples: size of the training set, by which epochs are counted.
        wire: sizes of the network's vectors; None looks them up by the network's name.
        data_digest: digest of a user's data set.
    """

    evaluates = False

    def __init__(
        self, options: argparse.Namespace, samples: int, wire: Mapping[str, int] | None = None, data_digest: str = ""
    ) -> None:
        if options.algorithm.needs_gradients:
            raise ExpectedError(
                f"--numerics none computes no gradients, so mode {options.mode} has nothing to choose from; use "
                "--numerics real"
            )
        self._options, self.samples, self.data_digest = options, samples, data_digest
        self.wire: Mapping[str, int] | None = wire or SIZES[options.network]

    def start(self, rank: int, world: SimulatedWorld) -> tuple[TimedTrainer, TimedIteration]:
        """See `Numerics.start`."""
        limits = make_limits(self._options, self.samples)
        trainer = TimedTrainer(choose_algorithm(self._options), world, limits, world.simulated.step_time)
        return trainer, TimedIteration(lambda: trainer.batch_size(self._options.batch_size))


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation: the round of the evaluated weights, their time in seconds, the accuracy, and its parts."""

    round: int
    time: float
    accuracy: float
    parts: Mapping[str, float]


@dataclass
class Simulation:
    """A modelled cluster and its training.

    Args:
        cluster: the cluster's model.
        options: the worker's flags, parsed.
        numerics: what the workers compute with.
        log_dir: folder for each worker's rounds, {log_dir}/{host}/{device}; None writes none.
        watch: called with this simulation and the trainer after each worker's rounds.
        leases: whether workers use leases on the state server's answers.

    Attributes:
        engine: the engine, which keeps virtual time.
        workers: the workers' totals, by rank.
        accuracies: the evaluations in the order of their times.
    """

    cluster: ClusterModel
    options: argparse.Namespace
    numerics: Numerics
    log_dir: Path | None = None
    watch: Callable[["Simulation", Any], object] = lambda simulation, trainer: None
    leases: bool = True
    accuracies: list[EvaluationRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = SimulationEngine()
        hosts = [server.host for server in self.cluster.servers]
        self.network = Network(self.engine, self.cluster.link, hosts, self.cluster.message_scale)
        nodes = [ServerNode(self.engine, model, shard) for shard, model in enumerate(self.cluster.servers)]
        self.state = ClusterState(self.engine, self.network, nodes, len(self.cluster.workers), self.numerics.wire)
        self.state.memory_bandwidth = self.cluster.memory_bandwidth
        if self.cluster.host_groups():
            self.state.share_hosts(self.cluster.ranks_by_host().values())
        self.collective: SharedCollectiveState | None = None
        if self.options.collective != "ps":
            places = [worker.host for worker in self.cluster.workers]
            name = self.options.collective
            # Each worker reads and updates the whole model, as a server receives and sends it.
            byte_time = max(2 / server.throughput for server in self.cluster.servers)
            self.collective = SharedCollectiveState(
                self.engine, self.network, places, name, self.numerics.wire, byte_time
            )
        self.state_server = SimulatedStateServer(self.engine, self.cluster.state_server)
        self.workers = [WorkerMetrics(worker) for worker in self.cluster.workers]
        self._callbacks: dict[int, RoundCallbacks] = {}

    @property
    def rounds(self) -> int:
        """Number of rounds completed, as server 0 counts them (mode local: as the worker does)."""
        return self.workers[0].rounds if self._round_state is None else self._round_state.round

    @property
    def samples(self) -> int:
        """Number of samples that all workers have used in those rounds."""
        if self._round_state is not None:
            return self._round_state.samples
        return self.workers[0].iterations * self.options.batch_size

    @property
    def samples_together(self) -> int:
        """Number of those samples whose commits were used together, in rounds."""
        return 0 if self._round_state is None else self._round_state.samples_together

    @property
    def _round_state(self) -> RoundState | None:
        """Round state of server 0, or of all ranks of a collective; None without exchanges."""
        if self.collective is not None:
            return self.collective.round_state
        return self.state.nodes[0].round_state if self.state.ready else None

    def run(self) -> None:
        """Run the simulation to its end.

        Raises:
            DeadlockError: the workers wait for one another forever.
            ExpectedError: a worker has failed, as it would in the real program.
        """
        try:
            for sums in self.workers:
                self._spawn(sums)
            self.engine.run()
        finally:
            for round_callbacks in self._callbacks.values():
                round_callbacks.close()

    # --- the workers ------------------------------------------------------------------------------

    def _spawn(self, sums: WorkerMetrics, delay: float = 0.0) -> None:
        worker, life = sums.worker, len(sums.worlds)
        recorded = self.log_dir is not None or self.numerics.evaluates
        world = SimulatedWorld(
            self.engine, self.state, self.state_server, worker, self.options.seed, life, self.leases, recorded
        )
        world.collective, world.step_times = self.collective, self.cluster.step_times
        sums.worlds.append(world)
        task = self.engine.spawn(f"worker {worker.rank} ({worker.name})", lambda: self._live(sums, world), delay)
        begins = self.engine.now + delay
        if crash := min((event for event in worker.crashes if event[0] >= begins), default=None):
            at, restart_after = crash
            self.engine.call_at(at, self._crash, sums, world, task, restart_after)

    def _crash(self, sums: WorkerMetrics, world: SimulatedWorld, task: GreenletTask, restart_after: float) -> None:
        if task.done:
            return
        for running in (task, *world.tasks):
            self.engine.crash(running)
        self.network.drop(world)
        world.crash()
        self._spawn(sums, restart_after)

    def _live(self, sums: WorkerMetrics, world: SimulatedWorld) -> None:
        """Run a worker as the worker program does, from its start to its end."""
        rank = sums.worker.rank
        try:
            trainer, iteration = self.numerics.start(rank, world)
            trainer.start()
            if len(sums.worlds) == 1:
                sums.began = self.engine.now
            metrics = SimulationMetrics(
                sums, lambda: self.engine.now, self._round_callbacks(sums, trainer), partial(self.watch, self)
            )
            try:
                train(trainer, iteration, metrics, iteration.data)
            except DivergedError:
                for round_callbacks in self._callbacks.values():
                    round_callbacks.diverged()
                raise
            trainer.close()
            sums.settings = trainer.algorithm.facts.get("chosen_settings", ())
        finally:
            sums.left = self.engine.now

    # --- logs and evaluation ----------------------------------------------------------------------

    def _round_callbacks(self, sums: WorkerMetrics, trainer: Any) -> RoundCallbacks | None:
        """Return the callbacks that write this slot's logs and, on rank 0, evaluate; None for neither."""
        worker, options = sums.worker, self.options
        evaluates = worker.rank == 0 and self.numerics.evaluates and not options.no_evaluation
        if evaluates and options.weight_average != "none":  # that of a replacement begins anew
            trainer.replica.average = average_of(trainer.algorithm)
        if worker.rank in self._callbacks:
            return self._callbacks[worker.rank]
        evaluations = None
        if evaluates:
            evaluator = SimulatedEvaluator(self.engine, self.cluster.evaluation_time, self._evaluate)
            evaluations = PeriodicEvaluation(evaluator, options.eval_duration, options.target_accuracy)
        if self.log_dir is None and evaluations is None:
            return None
        logs, loggers = None, []
        if self.log_dir is not None:
            logs = RoundLog(self.log_dir / worker.host, worker.folder, options.overwrite)
            if options.tensorboard is not None:
                loggers.append(EventFile(same_below(options.tensorboard, logs.folder, options.log_dir)))
        reporter = ProgressReporter(quiet=True, machine=False)
        callbacks = make_callbacks(trainer.algorithm, worker.rank, reporter, logs, loggers=loggers)
        if evaluations is not None:
            callbacks.append(self.numerics.unrecognized_classes())  # type: ignore[attr-defined]
        round_callbacks = RoundCallbacks(
            callbacks,
            self._facts(worker, trainer),
            LogClock(lambda: self.engine.now),
            evaluations,
            sums,
        )
        self._callbacks[worker.rank] = round_callbacks
        return round_callbacks

    def _evaluate(self, weights: Any, statistics: Any, every_sample: bool) -> EvaluationResult:
        result: EvaluationResult = self.numerics.evaluate(weights, statistics, every_sample)  # type: ignore[attr-defined]
        sums = self.workers[0]
        self.accuracies.append(EvaluationRecord(self.rounds, sums.ended - sums.began, result.value, result.parts))
        return result

    def _facts(self, worker: WorkerModel, trainer: Any) -> dict[str, Any]:
        """Return the content of run.json as in the worker program, without the machine and the time."""
        return {
            **facts_after_start(flag_facts(self.options, trainer.algorithm, self.numerics.data_digest), trainer),
            "host": worker.host,
            "device": worker.folder,
            "step_time": worker.device.mean,
            "started": 0.0,
            "simulated": True,
        }
