"""Simulate one job: from a description and flags to the result."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import config
from ..arguments import expand_paths
from ..launch import flags
from ..launch.description import Description, DescriptionError, read
from ..launch.plan import mode_folder
from . import view
from .cluster import ClusterModel, model
from .result import result
from .roundwise.exchange import EntangledError
from .roundwise.simulation import RoundwiseSimulation, covers
from .simulation import Numerics, Simulation, TimingNumerics


@dataclass(frozen=True)
class SimulationJob:
    """A job to simulate.

    Attributes:
        file: the description.
        numerics: "real" or "none".
        typed: flags of the worker that override the description's.
        changes: places in the description whose values are replaced; see `description.read`.
        logs: whether to write round files; None: where there are not too many workers.
        leases: whether workers keep leases.
        free_network: leave the description's network out.
        quiet: show nothing.
    """

    file: Path
    numerics: str = "real"
    typed: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    logs: bool | None = None
    leases: bool = True
    free_network: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class FinishedSimulation:
    """A finished simulation.

    Attributes:
        result: what came out, for JSON; see `result.result`.
        real: what it cost in real time; differs from run to run.
        logs: the folder of its logs, where they were written.
    """

    result: dict[str, Any]
    real: dict[str, Any]
    logs: Path | None


def describe(job: SimulationJob) -> Description:
    """Return the description of a job as it is to be simulated. Raises DescriptionError."""
    description = read(job.file, job.changes)
    if job.free_network:
        description = description.model_copy(update={"network": type(description.network)()})
    return description


def run(job: SimulationJob) -> FinishedSimulation:
    """Simulate a job and return the finished simulation.

    Raises:
        DescriptionError: the description or the flags make no job.
        ExpectedError: whatever ends a worker of the real program, too.
    """
    begun = time.perf_counter()
    description = describe(job)
    try:
        settings = flags.merge(description.train, job.typed)
        if job.numerics == "none":
            for name in ("target_accuracy", "eval_duration", "test_images"):
                if name in job.typed:
                    raise flags.FlagError(f"{flags.flag(name)}: with --numerics none nothing is evaluated")
                settings.pop(name, None)
        options = flags.understood(settings)
    except flags.FlagError as error:
        raise DescriptionError(f"{job.file}: train: {error}") from None
    for name in ("checkpoint_dir", "resume"):
        if name in job.typed:  # in the file they are launch's
            raise DescriptionError(f"{flags.flag(name)}: a simulation writes and reads no checkpoints; leave it out")
    expand_paths(options)
    for name in ("elastic", "redistribute"):
        if getattr(options, name, False):
            raise DescriptionError(f"{job.file}: train: {flags.flag(name)} is not modelled yet; leave it out")
    ends = [options.rounds, options.epochs, options.max_time, options.target_accuracy]
    ends.append(getattr(options, "train_steps", None))
    if not any(ends):
        raise DescriptionError(f"{job.file}: train: nothing ends this run; give --rounds, --epochs or --max-time")
    try:
        if description.state_server is not None:  # as launch, whose workers know where the state server is
            options.state_server_ip = description.state_server.host
        cluster = model(description, job.file.parent, only_first=options.algorithm.sends == "nothing")
    except DescriptionError as error:
        raise DescriptionError(f"{job.file}: {error}") from None
    if options.collective != "ps" and any(worker.crashes for worker in cluster.workers):
        raise DescriptionError(
            f"{job.file}: --collective {options.collective}: a crash would end the job; leave it out"
        )
    logs = len(cluster.workers) <= config.SIMULATE_LOGGED_WORKERS if job.logs is None else job.logs
    folder = mode_folder(options) if logs else None
    numerics = _numerics(job, options, len(cluster.workers))
    screen = view.choose(f"{options.network}, {options.mode}", job.quiet or options.quiet)
    ready = time.perf_counter()
    with closing(screen):
        simulation = _simulate(cluster, options, numerics, folder, screen.watch, job.leases)
    finished = time.perf_counter()
    real = {
        "preparation": ready - begun,
        "simulation": finished - ready,
        "events": simulation.events,
        **getattr(numerics, "seconds", {}),
        "computed_gradients": getattr(numerics, "gradients", 0),
    }
    return FinishedSimulation(result(simulation, job.file.name), real, folder)


def _simulate(
    cluster: ClusterModel,
    options: Any,
    numerics: Numerics,
    folder: Path | None,
    watch: Callable[[view.ObservedSimulation, Any], None],
    leases: bool,
) -> Simulation | RoundwiseSimulation:
    """Simulate round by round where that is possible and no rounds are logged, else event by event."""
    if isinstance(numerics, TimingNumerics) and folder is None and covers(cluster, options):
        with suppress(EntangledError):
            roundwise = RoundwiseSimulation(cluster, options, numerics, watch, leases)
            roundwise.run()
            return roundwise
    simulation = Simulation(cluster, options, numerics, folder, watch, leases)
    simulation.run()
    return simulation


def _numerics(job: SimulationJob, options: Any, workers: int) -> Numerics:
    if job.numerics == "none":
        from ..data.registry import REGISTRY

        return TimingNumerics(options, REGISTRY[options.dataset].training_samples)
    from .gradients import GradientNumerics

    return GradientNumerics(options, workers)
