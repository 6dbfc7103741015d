"""Simulate one job, given by a description and flags, and return the result."""

import functools
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import config
from ..arguments import expand_paths
from ..data import REGISTRY, load
from ..exchange import STATISTICS, WEIGHTS
from ..launch import flags
from ..launch.batch_shares import check_batch_by_speed, divides_by_speed, partition_of
from ..launch.description import Description, DescriptionError, errors_of, read
from ..launch.host_groups import check_per_host, exchanges_per_host
from ..launch.simulation_schema import SimulationSection
from ..launch.user_program import UserProgram, up_to_the_program
from ..loggers import tensorboard
from ..runtime import progress
from ..runtime.errors import ExpectedError
from ..runtime.progress_view import ProgressView
from ..training.run_folder import mode_folder
from . import view
from .cluster import model
from .result import result
from .simulation import Numerics, Simulation, TimingNumerics
from .timing import SIZES

#: Flags of checkpoints, which a simulation neither writes nor reads.
CHECKPOINT_FLAGS = ("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume")


@dataclass(frozen=True)
class SimulationJob:
    """A job to simulate.

    Attributes:
        file: file of the description.
        numerics: "real" or "none".
        typed: flags of the worker that override the description's.
        changes: key paths of the description with new values; see `description.read`.
        description: the cluster; None reads it from `file`, which is otherwise used only in messages
            and as the base of relative paths.
        logs: whether to write round files; None: unless there are too many workers.
        leases: whether workers use leases.
        free_network: whether to ignore the description's section `network`.
        quiet: whether to show no progress.
        initial_model: file of the initial model in the format of Gluon's load_parameters; None
            initializes the model from the seed.
        final_model: file to which the parameters of the final model are written.
    """

    file: Path
    numerics: str = "real"
    typed: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    description: Description | None = None
    logs: bool | None = None
    leases: bool = True
    free_network: bool = False
    quiet: bool = False
    initial_model: Path | None = None
    final_model: Path | None = None


@dataclass(frozen=True)
class FinishedSimulation:
    """A finished simulation.

    Attributes:
        result: its result, for JSON; see `result.result`.
        real: its costs in real time, which differ from run to run.
        logs: folder of its logs; None if none were written.
    """

    result: dict[str, Any]
    real: dict[str, Any]
    logs: Path | None


def describe(job: SimulationJob) -> Description:
    """Return the description of a job as it is to be simulated.

    Raises:
        DescriptionError: the file cannot be read, or does not describe a cluster.
    """
    description = job.description or read(job.file, job.changes)
    if description.program and (job.numerics != "none" or description.simulate.model_bytes is None):
        raise DescriptionError(
            f"{job.file}: program: a simulation does not run it. Without gradients (--numerics none) it needs the size "
            "of the program's model, for instance simulate: {model_bytes: 44.7MB}; with gradients, describe a network "
            "and a data set under train in the program's place"
        )
    if job.free_network:
        description = description.model_copy(update={"network": type(description.network)()})
    return description


def run(job: SimulationJob) -> FinishedSimulation:
    """Simulate a job and return the finished simulation.

    Raises:
        DescriptionError: the description and the flags do not make a job.
        ExpectedError: a worker has failed, as it would in the real program.
    """
    begun, processor = time.perf_counter(), time.process_time()
    description = describe(job)
    try:
        settings = flags.merge(_train(description, job.typed), job.typed)
        if job.numerics == "none":
            for name in ("target_accuracy", "eval_duration", "test_images", "reestimate_statistics"):
                if name in job.typed:
                    raise flags.FlagError(f"{flags.flag(name)}: with --numerics none nothing is evaluated")
                settings.pop(name, None)
        options = flags.understood(settings)
        if not description.program:
            flags.check_workers(options, len(description.workers))
            if job.numerics != "none" and (remark := flags.rate_remark(description.train, options)):
                progress.warn(remark)
    except flags.FlagError as error:
        with errors_of(job.file):
            raise flags.refusal(error, job.typed) from None
    if description.program:
        options.network = UserProgram.of(description.program).name
    for name in CHECKPOINT_FLAGS:
        if name in job.typed:  # those in the file are for launch
            raise DescriptionError(f"{flags.flag(name)}: a simulation writes and reads no checkpoints; leave it out")
    expand_paths(options)
    for name in ("elastic", "redistribute"):
        if getattr(options, name, False):
            raise DescriptionError(f"{job.file}: train: {flags.flag(name)} is not modelled yet; leave it out")
    for name in ("initial_model", "final_model"):
        if getattr(job, name) is not None and job.numerics == "none":
            raise DescriptionError(f"{flags.flag(name)}: with --numerics none there is no model; leave it out")
    if job.final_model is not None and options.no_evaluation:
        raise DescriptionError(
            "--final-model and --no-evaluation contradict each other: the evaluated model is written"
        )
    ends = [options.rounds, options.epochs, options.max_time, options.target_accuracy]
    ends.append(getattr(options, "train_steps", None))
    if not any(ends):
        raise DescriptionError(f"{job.file}: train: nothing ends this run; give --rounds, --epochs or --max-time")
    if per_host := exchanges_per_host(description, options):
        with errors_of(job.file):
            check_per_host(options)
    with errors_of(job.file):
        if description.state_server is not None:  # launch passes its address to the workers
            options.state_server_ip = description.state_server.host
        by_speed, _ = divides_by_speed(description, options, bool(description.program))
        description = description.model_copy(update={"per_host": per_host, "batch_by_speed": by_speed})
        cluster = model(description, job.file.parent, only_first=options.algorithm.sends == "nothing")
        if cluster.step_times:
            check_batch_by_speed(options)
        options.partition = partition_of(options.partition, description.workers[: len(cluster.workers)])
    if options.collective != "ps" and any(worker.crashes for worker in cluster.workers):
        raise DescriptionError(
            f"{job.file}: --collective {options.collective}: a crash would end the job; leave it out"
        )
    logs = len(cluster.workers) <= config.SIMULATE_LOGGED_WORKERS if job.logs is None else job.logs
    folder = mode_folder(options) if logs else None
    if folder is None and "tensorboard" in job.typed:  # a flag in the file is for launch
        raise DescriptionError(
            "--tensorboard: a simulation without logs (--no-logs, --sweep) writes no event files; leave it out"
        )
    if loggers := job.typed.keys() & {"wandb", "mlflow"}:
        raise DescriptionError(f"--{min(loggers)}: simulations are logged with --tensorboard only; leave it out")
    if folder is not None and options.tensorboard is not None:
        tensorboard.require()
    numerics, scale = _numerics(job, options, len(cluster.workers), description.simulate)
    cluster = replace(cluster, message_scale=scale)
    screen = ProgressView(f"{options.network}, {options.mode}", job.quiet or options.quiet)
    ready = time.perf_counter()
    with closing(screen):
        simulation = Simulation(cluster, options, numerics, folder, functools.partial(view.show, screen), job.leases)
        simulation.run()
    if job.final_model is not None:
        numerics.write_model(job.final_model)  # type: ignore[attr-defined]
    finished = time.perf_counter()
    real = {
        "preparation": ready - begun,
        "simulation": finished - ready,
        "core_seconds": time.process_time() - processor,
        "events": simulation.engine.events,
        **getattr(numerics, "seconds", {}),
        "computed_gradients": getattr(numerics, "gradients", 0),
    }
    return FinishedSimulation(result(simulation, job.file.name), real, folder)


def _train(description: Description, typed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the worker's flags of the description, including the batch size of a program."""
    if not description.program:
        return description.train
    for name in ("network", "dataset", "epochs"):
        if name in typed:
            raise flags.FlagError(f"{flags.flag(name)}: {up_to_the_program(name)}")
    return {**description.train, "batch_size": description.simulate.batch_size or config.BATCH_SIZE}


def _numerics(job: SimulationJob, options: Any, workers: int, section: SimulationSection) -> tuple[Numerics, float]:
    """Return the numerics, and the factor by which modelled messages are larger than simulated ones."""
    model_bytes = section.model_bytes
    if job.numerics == "none":
        return _timing(options) if model_bytes is None else _timing_of_size(options, model_bytes), 1.0
    from .gradients import GradientNumerics

    numerics = GradientNumerics(options, workers, job.initial_model)
    if model_bytes is None:
        return numerics, 1.0
    from .built_network import vector_sizes

    dataset = numerics.dataset
    return numerics, _values(model_bytes) / sum(vector_sizes(options.network, dataset.classes, dataset.shape).values())


def _values(model_bytes: float) -> int:
    """Return the number of float32 values in `model_bytes` bytes."""
    return max(1, round(model_bytes / 4))


def _timing_of_size(options: Any, model_bytes: float) -> TimingNumerics:
    """Return numerics without gradients, with messages of the given size.

    Neither the network nor the data set need exist; only `--epochs` uses the number of samples.
    """
    samples, digest = 0, ""
    if options.epochs:
        samples, _, _, digest = _data_facts(options.dataset, options.data_dir)
    return TimingNumerics(options, samples, {WEIGHTS: _values(model_bytes), STATISTICS: 0}, digest)


def _timing(options: Any) -> TimingNumerics:
    """Return numerics without gradients.

    A network that is not in `timing.SIZES` is built once for the sizes of its vectors, and a user's
    data set is read for its number of samples.
    """
    samples, classes, shape, digest = _data_facts(options.dataset, options.data_dir)
    network = options.network
    if network in SIZES and options.dataset in REGISTRY:
        return TimingNumerics(options, samples, SIZES[network])
    try:
        from .built_network import vector_sizes
    except ImportError as error:
        raise ExpectedError(
            f"network {network}: its size is found by building it; {error} Or describe its size, for instance "
            "simulate: {model_bytes: 44.7MB}."
        ) from None
    return TimingNumerics(options, samples, vector_sizes(network, classes, shape), digest)


@functools.lru_cache(maxsize=8)  # a sweep reads the same data set again and again
def _data_facts(name: str, data_dir: str | None) -> tuple[int, int, tuple[int, ...], str]:
    """Return training samples, classes, shape of a sample, and the digest of a data set."""
    if name in REGISTRY:  # it need not exist on this machine
        entry = REGISTRY[name]
        return entry.training_samples, entry.classes, entry.shape, ""
    dataset = load(name, data_dir)
    return len(dataset.train_labels), dataset.classes, dataset.shape, dataset.digest
