"""init_server and GradientSGD: the names of the published DGS, over this project's trainer.

    args = argparse.Namespace(
        rank=0, world_size=3, mode="gradient_sgd", master="10.1.1.34", port=9091
    )
    if args.rank == 0:
        init_server(args, net)  # serves until all workers have left
    else:
        trainer = GradientSGD(
            net.collect_params(), lr=0.1, model=net, momentum=0.7, weight_decay=5e-4, args=args
        )
        …
        trainer.step(batch_size)

Rank 0 serves, ranks 1 to world_size − 1 train; every machine runs the same script. As in Gluon's
trainers, the argument of `step` is the batch size.
"""

import os
import subprocess
import sys
from typing import Any

from . import config
from .algorithms import Algorithm, World, find
from .checkpoints.checkpoints import Checkpoints
from .exchange.protocol.round_state import Limits
from .runtime.errors import ExpectedError
from .trainer import Trainer
from .trainer_callbacks import TrainerCallback

#: The published names of the modes, and this project's.
MODES = {"gradient_sgd": "dgs", "aji": "gd-async", "dgc": "dgc-async", "asgd": "async", "sgd": "local"}


class UnsuitableArgumentsError(ExpectedError, ValueError):
    """Raised when `args` is invalid; the message names the field."""


def init_server(args: Any, net: Any = None) -> None:
    """Run the scheduler and the parameter server until every worker has left.

    The process of rank 0 calls it.

    Args:
        args: world_size (workers + 1), master (address of this machine; default localhost), port.
        net: not needed: the model comes from the first worker.

    Raises:
        UnsuitableArgumentsError: args cannot be used.
        ExpectedError: a process has failed.
    """
    environment = {**os.environ, **_environment(args)}
    environment.pop("DMLC_ROLE", None)
    programs = [
        [sys.executable, "-m", f"esync.{role}", *more] for role, more in (("scheduler", []), ("server", ["-c", "1"]))
    ]
    processes = [subprocess.Popen(program, env=environment) for program in programs]
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(codes):
        raise ExpectedError("the parameter server or the scheduler has failed; its last lines say why")


class GradientSGD(Trainer):
    """esync.Trainer with the arguments of the published optimizer.

    Args:
        params: net.collect_params().
        lr: learning rate; multiplies the mean gradient of a batch.
        model: the network; not needed, and accepted because the published optimizer takes it.
        momentum: of dgs and dgc-async; ASGD keeps it on the server; gradient dropping has none and
            ignores it.
        weight_decay: added to every gradient.
        args: rank (1 to world_size − 1), world_size, mode (gradient_sgd, aji, dgc, asgd or sgd, or
            this project's names), master, port, no_distributed (train alone). What is missing has
            its default.
        ratio: share of the values that is sent.
        secondary_ratio: the same for the server's answers; 0: all that has changed.
        limits, agreement, world, checkpoints, gradient_scale, dataset_size, run, sources: as
            in esync.Trainer.

    Raises:
        UnsuitableArgumentsError: args cannot be used.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.1,
        model: Any = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        args: Any = None,
        ratio: float = config.SPARSE_RATIO,
        secondary_ratio: float = config.SPARSE_SECONDARY_RATIO,
        *,
        limits: Limits | None = None,
        agreement: dict[str, Any] | None = None,
        world: World | None = None,
        checkpoints: Checkpoints | None = None,
        gradient_scale: float = 1.0,
        dataset_size: int | None = None,
        run: TrainerCallback | None = None,
        sources: dict[str, str] | None = None,
    ) -> None:
        mode = getattr(args, "mode", "gradient_sgd")
        mode = MODES.get(mode, mode)
        if getattr(args, "no_distributed", False):
            mode = "local"
        algorithm = _algorithm(mode, momentum=momentum, ratio=ratio, secondary_ratio=secondary_ratio)
        settings = {"learning_rate": lr, "wd": weight_decay, "momentum": momentum if algorithm.has_momentum else 0.0}
        if algorithm.sends != "nothing":
            os.environ.update(_environment(args))
        super().__init__(
            params,
            "sgd",
            settings,
            algorithm=algorithm,
            limits=limits,
            agreement=agreement,
            world=world,
            checkpoints=checkpoints,
            gradient_scale=gradient_scale,
            dataset_size=dataset_size,
            run=run,
            sources=sources,
        )


def _algorithm(mode: str, **values: float) -> Algorithm:
    """Return the algorithm of a mode, with those of the values for which it has options."""
    if mode not in MODES.values():
        raise UnsuitableArgumentsError(f"mode is {mode!r}, but should be one of {', '.join([*MODES, *MODES.values()])}")
    algorithm = find(mode)
    return algorithm(**{name: value for name, value in values.items() if name in algorithm.Options.model_fields})


def _environment(args: Any) -> dict[str, str]:
    """Return the environment variables by which ps-lite finds the other processes."""
    world_size = getattr(args, "world_size", 3)
    if not isinstance(world_size, int) or world_size < 2:
        raise UnsuitableArgumentsError(
            f"world_size is {world_size!r}, but should be 2 or more: one server and at least one worker"
        )
    return {
        "DMLC_PS_ROOT_URI": str(getattr(args, "master", "localhost")),
        "DMLC_PS_ROOT_PORT": str(getattr(args, "port", config.SCHEDULER_PORT)),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(world_size - 1),
    }
