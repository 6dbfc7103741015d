"""Build from the worker's flags: device, algorithm, trainer, limits, checkpoints, callbacks.

The worker program puts itself together from these, and so does a simulation.
"""

import argparse
import functools
import math
import os
import platform
import socket
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import config
from ..algorithms.loading import digest, source
from ..algorithms.registry import flags_of
from ..arguments import choose_algorithm, effective, given_state_server
from ..runtime.environment import state_server_address
from ..runtime.errors import ExpectedError
from ..version import __version__

if TYPE_CHECKING:
    from ..algorithms import Algorithm, World
    from ..checkpoints.checkpoints import Checkpoints
    from ..coordination.reports import RoundReporter
    from ..exchange.protocol.round_state import Limits
    from ..runtime.progress import ProgressReporter
    from ..trainer import Trainer
    from .callbacks import Callback
    from .round_log import RoundLog

#: Gluon's optimizers whose step is proportional to the gradient, so that a rate may multiply its
#: sum or its mean.
PROPORTIONAL = frozenset({"sgd", "ccsgd", "nag", "lbsgd", "dcasgd", "sgld"})


#: Flags of all modes that run.json names beside its "options", as it always has.
FACTS = (
    *("network", "dataset", "batch_size", "seed", "partition", "optimizer", "momentum", "weight_decay", "step_time"),
    "test_images",
)


class NoSuchDeviceError(ExpectedError):
    """The requested device does not exist."""


def choose_device(options: argparse.Namespace) -> tuple[Any, str]:
    """Return the MXNet context, and the name of the device's log folder.

    Without -g and -c the first GPU is taken, or the CPU where there is none.
    """
    from ..runtime.mxnet_import import mx

    gpus = mx.context.num_gpus()
    if options.cpu or (options.gpu is None and not gpus):
        return mx.cpu(), "cpu"
    gpu = config.DEFAULT_GPU_ID if options.gpu is None else options.gpu
    if gpu >= gpus:
        raise NoSuchDeviceError(
            f"--gpu {gpu}: this machine and this build of MXNet have {gpus} GPU(s); -c 1 is the CPU"
        )
    return mx.gpu(gpu), f"gpu{gpu}"


def make_callbacks(
    options: argparse.Namespace,
    rank: int,
    reporter: "ProgressReporter",
    logs: "RoundLog | None" = None,
    reports: "RoundReporter | None" = None,
    started: float = 0.0,
    step: int = 0,
) -> "list[Callback]":
    """Make the callbacks of a worker's rounds.

    Args:
        options: the flags.
        rank: of this worker.
        reporter: prints progress.
        logs: the log files of this worker; None writes none. Runs that switch to asynchronous
            training have acc.csv and loss.csv beside those of rank 0.
        reports: to the state server; None where there are none.
        started: wall clock when the run began, seconds since 1970; 0 in virtual time.
        step: the last step that is known already, where the run goes on with its logs.
    """
    from .callbacks import CurveFiles, LogFiles, ProgressLines, StateServerReports
    from .csv_curves import CsvCurves

    callbacks: list[Callback] = []
    if logs is not None:
        if options.algorithm.switches_synchrony and rank == 0:
            callbacks.append(CurveFiles(CsvCurves(logs, started, step)))
        callbacks.append(LogFiles(logs))
    if reports is not None:
        callbacks.append(StateServerReports(reports))
    return [*callbacks, ProgressLines(reporter, rank)]


def choose_checkpoints(options: argparse.Namespace) -> "Checkpoints | None":
    """Make the checkpoints that the flags ask for; None where they ask for none."""
    from ..checkpoints.checkpoints import Checkpoints

    if not options.checkpoint_dir:
        return None
    return Checkpoints(
        options.checkpoint_dir,
        options.checkpoint_every,
        options.keep_checkpoints,
        resume=options.resume,
        overwrite=options.overwrite,
    )


def make_limits(options: argparse.Namespace, samples: int) -> "Limits":
    """Make the limits of the run; `samples` is the size of the training set."""
    from ..exchange.protocol.round_state import Limits

    return Limits(
        rounds=options.rounds or math.inf,
        samples=math.ceil(options.epochs * samples) if options.epochs else math.inf,
        seconds=options.max_time or math.inf,
    )


def make_trainer(
    net: Any, options: argparse.Namespace, world: "World", samples: int, checkpoints: "Checkpoints | None" = None
) -> "Trainer":
    """Make the trainer that the flags describe; `samples` is the size of the training set."""
    from ..runtime.mxnet_import import mx
    from ..trainer import Trainer

    if options.optimizer.lower() not in mx.optimizer.Optimizer.opt_registry:
        known = ", ".join(sorted(mx.optimizer.Optimizer.opt_registry))
        raise ExpectedError(f"--optimizer {options.optimizer!r} is not known to Gluon; known: {known}")
    settings = {
        "learning_rate": _learning_rate(options),
        "wd": options.weight_decay,
    }
    if options.momentum is not None:
        settings["momentum"] = options.momentum
    agreement = {
        "network": options.network,
        "data set": options.dataset,
        "partition": options.partition,
        "seed": options.seed,
        # Checkpoints of earlier versions name it in all modes.
        "global learning rate": getattr(options, "global_lr", config.LEARNING_RATE_GLOBAL),
    }
    try:
        algorithm = choose_algorithm(options)
        agreement |= algorithm.checkpoint_terms
        return Trainer(
            net.collect_params(),
            options.optimizer,
            settings,
            algorithm=algorithm,
            limits=make_limits(options, samples),
            agreement=agreement,
            world=world,
            checkpoints=checkpoints,
            gradient_scale=gradient_scale(options),
        )
    except (ValueError, TypeError) as error:  # TypeError: MXNet's optimizer does not know an option
        raise ExpectedError(str(error)) from None


def _learning_rate(options: argparse.Namespace) -> float:
    """Return the learning rate of the optimizer, wherever that runs."""
    return float(options.local_lr if options.algorithm.sends == "updates" else options.learning_rate)


def gradient_scale(options: argparse.Namespace) -> float:
    """Return how many times the mean gradient of a batch the learning rates of the command line multiply.

    The batch size, hence the sum over the batch, where a step is proportional to the gradient.
    Optimizers that divide by the gradient's own size (Adam, Adagrad, LARS, …) step as far for the
    sum as for the mean: they get the mean, for which their other constants are meant, and their
    rate is their own.
    """
    return options.batch_size if _multiply_the_sum(options) else 1.0


def _multiply_the_sum(options: argparse.Namespace) -> bool:
    """Return whether the learning rates multiply the gradient summed over the batch, not its mean."""
    return options.optimizer.lower() in PROPORTIONAL


def make_reports(options: argparse.Namespace, trainer: "Trainer", device: str) -> "RoundReporter | None":
    """Make what reports to the state server's dashboard; None where no state server is known."""
    from ..coordination.reports import RoundReporter

    given = given_state_server(options)
    if not given and not os.environ.get("ESYNC_STATE_SERVER"):
        return None
    host, port = state_server_address(given)
    first = trainer.rank == 0
    begin = trainer.workers if first and not trainer.algorithm.asks_state_server and not trainer.replacement else None
    return RoundReporter(host, port, options.job, trainer.rank, device, begin, ends=first)


def run_facts(options: argparse.Namespace, trainer: "Trainer") -> dict[str, Any]:
    """Return what run.json says about the run."""
    algorithm = trainer.algorithm
    plan = getattr(algorithm, "plan", None)
    flags = effective(options)
    return {
        **dict.fromkeys(("global_lr", "slowest_iterations", "query_mode")),  # in modes that have none
        **{dest: flags[dest] for dest in flags_of(type(algorithm))},
        **{flag: getattr(options, flag) for flag in FACTS},
        "version": __version__,
        "versions": versions(),
        "host": socket.gethostname(),
        "rank": trainer.rank,
        "workers": trainer.workers,
        "mode": algorithm.name,
        "algorithm": algorithm_facts(type(algorithm)),
        "options": _effective_options(options, algorithm),
        "learning_rate": _learning_rate(options),
        "learning_rate_multiplies": "sum" if _multiply_the_sum(options) else "mean",
        "own_rates": algorithm.own_rates,
        "collective": options.collective if algorithm.sends != "nothing" else None,
        "parameters": trainer.replica.size,
        "model_bytes": 4 * trainer.replica.size,
        "started": time.time(),
        **({"switch_order": plan.order, "bsp_share": plan.bsp_share} if plan is not None else {}),
    }


def _effective_options(options: argparse.Namespace, algorithm: "Algorithm") -> dict[str, Any]:
    """Return the value of every flag that counts in this run, whether it was given or is a default."""
    momentum = config.MOMENTUM if options.momentum is None else options.momentum
    flags = {**effective(options), "momentum": momentum}
    own = algorithm.effective_options
    return {**flags, **{name: value for name, value in own.items() if name not in ("state_server", "job")}}


def algorithm_facts(algorithm: "type[Algorithm]") -> dict[str, Any]:
    """Return what the log tools have to know of an algorithm, so that they need not import it."""
    return {
        "name": algorithm.name,
        "label": algorithm.label,
        "folder": algorithm.name,
        "summary": algorithm.summary,
        "style": asdict(algorithm.style),
        **({"source": source(algorithm), "digest": digest(algorithm)} if source(algorithm) else {}),
    }


@functools.cache  # a simulation asks for every worker
def versions() -> dict[str, str]:
    """Return the versions of what the results depend on: this package, Python, and the libraries that compute."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"esync": __version__, "python": platform.python_version()}
    for name in (
        "mxnet",
        "mxnet-cu101",
        "mxnet-cu112",
        "mxnet-cu117",
        "gluoncv",
        "numpy",
        "numba",
        "pydantic",
        "mpi4py",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
