"""What the worker's flags describe: device, algorithm, trainer, limits, checkpoints, and what is told about the run.

The worker program puts itself together from these, and so does a simulation.
"""

import argparse
import math
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from . import __version__, config
from .arguments import MEANS, OWN_STATISTICS, SPARSE, UPDATES, switch_schedule, watching
from .environment import state_server_address
from .errors import ExpectedError

if TYPE_CHECKING:
    from .algorithms import Algorithm, World
    from .checkpoint import Checkpoints
    from .coordination.reports import Reports
    from .exchange.ledger import Limits
    from .trainer import Trainer

#: Gluon's optimizers whose step is proportional to the gradient, so that a rate may multiply its sum or its mean.
PROPORTIONAL = frozenset({"sgd", "ccsgd", "nag", "lbsgd", "dcasgd", "sgld"})

#: What run.json says about delay compensation, and about sparse messages.
DCASGD_FLAGS = ("dcasgd_lambda", "dcasgd_adaptive", "dcasgd_lambda_on")
SPARSE_FLAGS = ("sparse_ratio", "secondary_ratio", "sparse_values", "sparse_dense_below")


class NoSuchDeviceError(ExpectedError):
    """The device asked for is not there."""


def choose_device(options: argparse.Namespace) -> tuple[Any, str]:
    """The MXNet context, and the name of the device's log folder.

    Without -g and -c the first GPU is taken, or the CPU where there is none.
    """
    from .engine import mx

    gpus = mx.context.num_gpus()
    if options.cpu or (options.gpu is None and not gpus):
        return mx.cpu(), "cpu"
    gpu = config.DEFAULT_GPU_ID if options.gpu is None else options.gpu
    if gpu >= gpus:
        raise NoSuchDeviceError(
            f"--gpu {gpu}: this machine and this build of MXNet have {gpus} GPU(s); -c 1 is the CPU"
        )
    return mx.gpu(gpu), f"gpu{gpu}"


def choose_algorithm(options: argparse.Namespace) -> "Algorithm":
    """The algorithm that the flags describe."""
    from .algorithms import (
        ASGD,
        DCASGD,
        DGS,
        SSGD,
        SSP,
        DGCAsync,
        DiLoCo,
        DyLU,
        ESync,
        GDAsync,
        Local,
        LocalSGD,
        SyncSwitch,
    )

    run_ahead = options.run_ahead if options.overlap else 0
    if options.mode == "esync":
        return ESync(
            options.global_lr,
            options.local_iterations,
            given_state_server(options),
            options.epsilon,
            options.slowest_iterations,
            options.query_mode,
            options.job,
            options.outer_momentum,
            options.weighting,
            options.compression,
            run_ahead,
        )
    if options.mode in ("local-sgd", "diloco"):
        kind = DiLoCo if options.mode == "diloco" else LocalSGD
        means = options.outer_momentum, options.weighting, options.compression
        return kind(options.local_iterations, options.global_lr, *means, run_ahead)
    if options.mode == "dylu":
        return DyLU(options.local_iterations, options.global_lr, options.outer_momentum, options.statistics)
    if options.mode == "ssp":
        return SSP(options.staleness, options.statistics)
    if options.mode == "sync-switch":
        return SyncSwitch(
            switch_schedule(options),
            options.batch_size,
            options.lr_decay,
            watching(options),
            given_state_server(options),
            options.job,
            options.statistics,
        )
    if options.mode == "async" and options.use_dcasgd:
        lambda_ = options.dcasgd_lambda, options.dcasgd_adaptive, options.dcasgd_lambda_on
        return DCASGD(*lambda_, options.statistics)
    if options.mode == "sync":
        return SSGD(options.compression)
    sparse = {
        "ratio": options.sparse_ratio,
        "secondary_ratio": options.secondary_ratio,
        "values": options.sparse_values,
        "dense_below": options.sparse_dense_below,
        "statistics": options.statistics,
    }
    if options.mode == "gd-async":
        return GDAsync(**sparse)
    if options.mode in ("dgs", "dgc-async") and options.momentum is not None:
        sparse["momentum"] = options.momentum  # also where it is 0
    if options.mode == "dgs":
        return DGS(**sparse)
    if options.mode == "dgc-async":
        return DGCAsync(**sparse, clip=options.dgc_clip, warm_up=options.dgc_warm_up)
    return ASGD(options.statistics) if options.mode == "async" else Local()


def make_curves(options: argparse.Namespace, rank: int, logs: Any, started: float = 0.0, step: int = 0) -> Any:
    """Who writes acc.csv and loss.csv: rank 0 where the mode is Sync-Switch; None for the others.

    Args:
        options: the flags.
        rank: of this worker.
        logs: its round log.
        started: wall clock when the run began.
        step: the last step that is known already.
    """
    from .curves import Curves

    return Curves(logs, started, step) if options.mode == "sync-switch" and rank == 0 else None


def asks_state_server(options: argparse.Namespace) -> bool:
    """Whether the algorithm needs a state server, and begins the job there."""
    if options.mode == "esync":
        return options.local_iterations is None
    return watching(options) is not None


def given_state_server(options: argparse.Namespace) -> str | None:
    """The state server's address where the flags say it."""
    return f"{options.state_server_ip}:{options.state_server_port}" if options.state_server_ip else None


def choose_checkpoints(options: argparse.Namespace) -> "Checkpoints | None":
    """Where the flags want checkpoints."""
    from .checkpoint import Checkpoints

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
    """What ends the run; `samples` is the size of the training set."""
    from .exchange.ledger import Limits

    return Limits(
        rounds=options.rounds or math.inf,
        samples=math.ceil(options.epochs * samples) if options.epochs else math.inf,
        seconds=options.max_time or math.inf,
    )


def make_trainer(
    net: Any, options: argparse.Namespace, world: "World", samples: int, checkpoints: "Checkpoints | None" = None
) -> "Trainer":
    """The trainer that the flags describe; `samples` is the size of the training set."""
    from .engine import mx
    from .trainer import Trainer

    if options.optimizer.lower() not in mx.optimizer.Optimizer.opt_registry:
        known = ", ".join(sorted(mx.optimizer.Optimizer.opt_registry))
        raise ExpectedError(f"--optimizer {options.optimizer!r} is not known to Gluon; known: {known}")
    settings = {
        "learning_rate": options.local_lr if options.mode in UPDATES else options.learning_rate,
        "wd": options.weight_decay,
    }
    if options.momentum is not None:
        settings["momentum"] = options.momentum
    agreement = {
        "network": options.network,
        "data set": options.dataset,
        "partition": options.partition,
        "seed": options.seed,
        "global learning rate": options.global_lr,
    }
    if options.outer_momentum:
        agreement["outer momentum"] = options.outer_momentum
    if options.weighting != config.WEIGHTING:
        agreement["weighting"] = options.weighting
    if options.mode == "async" and options.use_dcasgd and options.dcasgd_lambda_on == "mean":
        # Checkpoints from when λ was relative to the sum over the batch lack this; --dcasgd-lambda-on sum takes them.
        agreement["--dcasgd-lambda-on"] = "mean"
    try:
        algorithm = choose_algorithm(options)
        if options.mode == "sync-switch":
            agreement |= algorithm.terms  # checkpoints keep them, too
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


def gradient_scale(options: argparse.Namespace) -> float:
    """How many times the mean gradient of a batch the learning rates of the command line multiply.

    The batch size, hence the sum over the batch, where a step is proportional to the gradient. Optimizers that divide
    by the gradient's own size (Adam, Adagrad, LARS, …) step as far for the sum as for the mean: they get the mean, for
    which their other constants are meant, and their rate is their own.
    """
    return options.batch_size if _multiply_the_sum(options) else 1.0


def _multiply_the_sum(options: argparse.Namespace) -> bool:
    """Whether the learning rates multiply the gradient summed over the batch, not its mean."""
    return options.optimizer.lower() in PROPORTIONAL


def make_reports(options: argparse.Namespace, trainer: "Trainer", device: str) -> "Reports | None":
    """What tells the state server's dashboard; None where no state server is known."""
    from .coordination.reports import Reports

    given = given_state_server(options)
    if not given and not os.environ.get("ESYNC_STATE_SERVER"):
        return None
    host, port = state_server_address(given)
    first = trainer.rank == 0
    begin = trainer.workers if first and not asks_state_server(options) and not trainer.replacement else None
    return Reports(host, port, options.job, trainer.rank, device, begin, ends=first)


def run_facts(options: argparse.Namespace, trainer: "Trainer") -> dict[str, Any]:
    """What run.json says about the run."""
    flags: tuple[str, ...] = (
        "network",
        "dataset",
        "batch_size",
        "seed",
        "partition",
        "optimizer",
        "momentum",
        "weight_decay",
        "step_time",
        "test_images",
    )
    if trainer.algorithm.name == "dcasgd":
        flags += DCASGD_FLAGS
    if options.mode in SPARSE:
        flags += SPARSE_FLAGS
    plan = getattr(trainer.algorithm, "plan", None)
    return {
        "version": __version__,
        "host": socket.gethostname(),
        "rank": trainer.rank,
        "workers": trainer.workers,
        "mode": trainer.algorithm.name,
        "learning_rate": options.local_lr if options.mode in UPDATES else options.learning_rate,
        "learning_rate_multiplies": "sum" if _multiply_the_sum(options) else "mean",
        "own_rates": trainer.algorithm.own_rates,
        "global_lr": options.global_lr if options.mode in UPDATES else None,
        "slowest_iterations": options.slowest_iterations if options.mode == "esync" else None,
        "query_mode": options.query_mode if options.mode == "esync" else None,
        "collective": options.collective if options.mode != "local" else None,
        "parameters": trainer.replica.size,
        "model_bytes": 4 * trainer.replica.size,
        "started": time.time(),
        **({"switch_order": plan.order, "bsp_share": plan.bsp_share} if plan is not None else {}),
        **(
            {"weighting": options.weighting, "outer_momentum": options.outer_momentum, "overlap": options.overlap}
            if options.mode in MEANS
            else {}
        ),
        **({"statistics": options.statistics} if options.mode in OWN_STATISTICS else {}),
        **{flag: getattr(options, flag) for flag in flags},
    }
