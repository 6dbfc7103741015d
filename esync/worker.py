"""python -m esync.worker: trains a network on one device, together with the other workers of a cluster.

    DMLC_PS_ROOT_URI=10.1.1.34 DMLC_PS_ROOT_PORT=9091 DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=6 \
        python -m esync.worker -g 0 -m esync -n resnet18-v1 -ip 10.1.1.34

With DMLC_ROLE=server or scheduler in the environment it becomes that role, so that one command line serves for all.
"""

import argparse
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__, config, priority, program, progress
from .arguments import MEANS, build_parser, parse, switch_schedule, watching
from .environment import ROLES, Cluster, state_server_address
from .errors import ExpectedError
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .algorithms import Algorithm, World
    from .checkpoint import Checkpoints
    from .coordination.reports import Reports
    from .exchange.ledger import Limits
    from .trainer import Trainer

log = logging.getLogger(__name__)

#: Names this worker's log folder, where the launcher has chosen one for it.
FOLDER_VARIABLE = "ESYNC_DEVICE_FOLDER"
#: Set where the launcher knows what to do when this worker dies: then it need not end the whole job.
SUPERVISED_VARIABLE = "ESYNC_SUPERVISED"


class NoSuchDeviceError(ExpectedError):
    """The device asked for is not there."""


def main(arguments: list[str] | None = None) -> int:
    """Run the role that the environment asks for; the exit code."""
    role = os.environ.get("DMLC_ROLE", "worker")
    if role not in ROLES:
        print(f"worker: error: DMLC_ROLE is {role!r}, but should be one of {', '.join(ROLES)}", file=sys.stderr)
        return 2
    if role == "server":
        from . import server

        return server.main(arguments)
    if role == "scheduler":
        from . import scheduler

        return scheduler.main(arguments)
    options = parse(build_parser("python -m esync.worker", "Train a network on this device."), arguments)
    priority.stand_back(priority.of_emulated(options.step_time))
    return program.run("worker", lambda watchdog: _work(options, watchdog))


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
    from .algorithms import ASGD, DCASGD, DGS, SSGD, DGCAsync, DiLoCo, ESync, GDAsync, Local, LocalSGD, SyncSwitch

    run_ahead = options.run_ahead if options.overlap else 0
    if options.mode == "esync":
        return ESync(
            options.global_lr,
            options.local_iterations,
            _state_server(options),
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
    if options.mode == "sync-switch":
        return SyncSwitch(
            switch_schedule(options),
            options.batch_size,
            options.lr_decay,
            watching(options),
            _state_server(options),
            options.job,
        )
    if options.mode == "async" and options.use_dcasgd:
        return DCASGD(options.dcasgd_lambda, options.dcasgd_adaptive)
    if options.mode == "sync":
        return SSGD(options.compression)
    sparse = {
        "ratio": options.sparse_ratio,
        "secondary_ratio": options.secondary_ratio,
        "values": options.sparse_values,
    }
    if options.mode == "gd-async":
        return GDAsync(**sparse)
    if options.mode in ("dgs", "dgc-async") and options.momentum is not None:
        sparse["momentum"] = options.momentum  # also where it is 0
    if options.mode == "dgs":
        return DGS(**sparse)
    if options.mode == "dgc-async":
        return DGCAsync(**sparse, clip=options.dgc_clip, warm_up=options.dgc_warm_up)
    return ASGD() if options.mode == "async" else Local()


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


def _state_server(options: argparse.Namespace) -> str | None:
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
    import math

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
        "learning_rate": options.local_lr if options.mode in MEANS else options.learning_rate,
        "wd": options.weight_decay,
        # The learning rates of the command line multiply the sum over the batch: undo the division in `step`.
        "rescale_grad": options.batch_size,
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
    if options.mode == "sync-switch":
        agreement |= {"batch size": options.batch_size, "schedule": str(switch_schedule(options))}
        agreement["decay of the learning rate"] = str(options.lr_decay)
        agreement["online policy"] = str(watching(options))
    try:
        return Trainer(
            net.collect_params(),
            options.optimizer,
            settings,
            algorithm=choose_algorithm(options),
            limits=make_limits(options, samples),
            agreement=agreement,
            world=world,
            checkpoints=checkpoints,
        )
    except (ValueError, TypeError) as error:  # TypeError: MXNet's optimizer does not know an option
        raise ExpectedError(str(error)) from None


def _work(options: argparse.Namespace, watchdog: Watchdog) -> int:
    """Set everything up, train, leave."""
    import math

    import numpy as np

    from .data import Batches, find_data_dir, load, partition, redistribute
    from .engine import mx
    from .evaluate import EvaluationProcess
    from .exchange import JobAbortedError, SlotLostError
    from .exchange.collective_start import check_start
    from .exchange.collective_worker import CollectiveExchange
    from .models import MODELS, build
    from .progress import VARIABLE, Reporter
    from .randomness import reseed
    from .roundlog import RoundLog
    from .rounds import RoundKeeper
    from .training import DIVERGED, DivergedError, Iteration, train, warm_up
    from .world import RealWorld

    if options.mode != "local":
        if options.collective == "ps":
            Cluster.from_environment()  # what is missing there is told before anything takes long
        else:
            check_start(options.collective)
        if asks_state_server(options):
            state_server_address(_state_server(options))
    data_dir = find_data_dir(options.data_dir, options.dataset)
    dataset = load(options.dataset, data_dir)
    context, device = choose_device(options)
    hybridize = not options.no_hybridize
    net = build(options.network, dataset.classes, context, options.seed, hybridize, dataset.channels)
    lease = options.lease if options.elastic else math.inf
    timeouts = options.start_timeout, options.round_timeout
    world = RealWorld(options.step_time, watchdog, *timeouts, lease, options.straggle, options.collective)
    checkpoints = choose_checkpoints(options)
    trainer = make_trainer(net, options, world, len(dataset.train_labels), checkpoints)

    def batches(indices: np.ndarray, seed: tuple[int, ...]) -> Batches:
        return Batches(dataset.train_images, dataset.train_labels, indices, options.batch_size, seed)

    def iteration(batches: Batches) -> Iteration:
        loss, size = mx.gluon.loss.SoftmaxCrossEntropyLoss(), MODELS[options.network].size
        return Iteration(net, loss, batches, size, context, lambda: reseed(trainer, options.seed))

    joined = False
    reports = None
    try:
        warm_up(trainer, iteration(batches(np.arange(len(dataset.train_labels)), (options.seed,))))
        progress.tell(progress.READY)
        trainer.start()
        progress.tell(progress.JOINED, rank=trainer.rank, round=trainer.round)
        joined = True
        dealt = partition(options.partition, dataset.train_labels, trainer.workers, options.seed)

        def share(members: tuple[int, ...]) -> Batches:
            present = redistribute(dealt, members, options.seed) if options.redistribute else dealt
            return batches(present.shares[trainer.rank], (options.seed, trainer.rank))

        folder = os.environ.get(FOLDER_VARIABLE, device)
        resumed = checkpoints.resumed if checkpoints is not None else None
        # A replacement goes on with the logs of the dead worker, a resumed run with its own.
        logged = trainer.round if trainer.replacement or resumed is not None else 0
        logs = RoundLog(options.log_dir, folder, options.overwrite, logged, trainer.rank)
        reporter = Reporter(options.quiet, machine=os.environ.get(VARIABLE) == "json")
        reporter.say(f"worker {trainer.rank} of {trainer.workers} on {device}, logs in {logs.folder}")
        if trainer.replacement:
            reporter.say(f"takes the place of a worker that is gone, after round {trainer.round}")
        if resumed is not None:
            reporter.say(f"going on from the checkpoint of round {resumed} in {options.checkpoint_dir}")
        elif options.resume and not trainer.replacement:
            reporter.say(f"no checkpoint in {options.checkpoint_dir} yet: beginning from the beginning")
        examiner = None
        if trainer.rank == 0 and not options.no_evaluation:
            values, images = trainer.replica.size, options.test_images
            examiner = EvaluationProcess(options.network, options.dataset, str(data_dir), values, images)
        reports = make_reports(options, trainer, logs.folder.name)
        rounds = RoundKeeper(
            logs,
            reporter,
            {**run_facts(options, trainer), "device": device, "resumed": resumed},
            examiner,
            options.eval_duration,
            options.target_accuracy,
            trainer.world.device.now,
            round=trainer.round,
            elapsed=trainer.elapsed,
            reports=reports,
            traffic=exchange if isinstance(exchange := trainer.algorithm.exchange, CollectiveExchange) else None,
            curves=make_curves(
                options,
                trainer.rank,
                logs,
                time.time() - trainer.elapsed,
                trainer.algorithm.result.step if trainer.algorithm.result is not None and logged else 0,
            ),
        )
        try:
            own = iteration(share(trainer.members))
            if checkpoints is not None:
                checkpoints.track("batches", own)
                checkpoints.before(rounds.flush)
            train(trainer, own, rounds, share if options.redistribute else None, checkpoints)
        except (DivergedError, JobAbortedError) as error:
            if DIVERGED in str(error):
                rounds.diverged()
            raise
        finally:
            rounds.close()
    except (JobAbortedError, SlotLostError) as error:
        if isinstance(error, JobAbortedError):
            _farewell(reports, str(error))
        trainer.close()
        raise
    except BaseException as error:
        if joined and SUPERVISED_VARIABLE in os.environ and not isinstance(error, ExpectedError):
            # The launcher starts a replacement; the others wait for that, or go on without this worker.
            log.exception("worker %d ends: %s", trainer.rank, error or type(error).__name__)
            program.leave(1)
        reason = f"worker {trainer.rank}: {error or type(error).__name__}"
        trainer.abort(reason)
        _farewell(reports, reason)
        trainer.close()
        raise
    _farewell(reports, f"done after {trainer.round} rounds")
    trainer.close()
    reporter.say(f"done after {trainer.round} rounds")
    if trainer.rank == 0 and not options.no_export:
        _export(net, options, logs.folder, context, reporter.say, dataset.channels)
    return 0


def _export(
    net: Any,
    options: argparse.Namespace,
    log_folder: Path,
    context: Any,
    say: Callable[[str], None],
    channels: int,
) -> None:
    """Write the final model beside the checkpoints, or beside the logs where there are none."""
    from . import finalmodel
    from .models import MODELS
    from .roundlog import MODEL_FOLDER

    folder = Path(options.checkpoint_dir or log_folder) / MODEL_FOLDER
    size = MODELS[options.network].size
    finalmodel.save(net, folder, (1, channels, size, size), context, say)
    say(f"final model in {folder}")


def _farewell(reports: "Reports | None", reason: str) -> None:
    """Let the last reports reach the state server."""
    if reports is not None:
        reports.close(reason)


def make_reports(options: argparse.Namespace, trainer: "Trainer", device: str) -> "Reports | None":
    """What tells the state server's dashboard; None where no state server is known."""
    from .coordination.reports import Reports

    given = _state_server(options)
    if not given and not os.environ.get("ESYNC_STATE_SERVER"):
        return None
    host, port = state_server_address(given)
    first = trainer.rank == 0
    begin = trainer.workers if first and not asks_state_server(options) and not trainer.replacement else None
    return Reports(host, port, options.job, trainer.rank, device, begin, ends=first)


def run_facts(options: argparse.Namespace, trainer: "Trainer") -> dict[str, Any]:
    """What run.json says about the run."""
    flags = (
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
    plan = getattr(trainer.algorithm, "plan", None)
    return {
        "version": __version__,
        "host": socket.gethostname(),
        "rank": trainer.rank,
        "workers": trainer.workers,
        "mode": trainer.algorithm.name,
        "learning_rate": options.local_lr if options.mode in MEANS else options.learning_rate,
        "global_lr": options.global_lr if options.mode in MEANS else None,
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
        **{flag: getattr(options, flag) for flag in flags},
    }


if __name__ == "__main__":
    program.leave(main())
