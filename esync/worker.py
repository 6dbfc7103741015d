"""Train a network on one device, together with the other workers of a cluster: `python -m esync.worker`.

    DMLC_PS_ROOT_URI=10.1.1.34 DMLC_PS_ROOT_PORT=9091 DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=6 \
        python -m esync.worker -g 0 -m esync -n resnet18-v1 -ip 10.1.1.34

With DMLC_ROLE=server or scheduler in the environment it takes that role, so one command line serves
all.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import choose_algorithm, expand_paths, given_state_server, read
from .runtime import output, processes, program, progress
from .runtime.environment import ROLES, SUPERVISED_VARIABLE, Cluster, state_server_address
from .runtime.errors import ExpectedError
from .runtime.watchdog import InterruptedBySignalError, Watchdog
from .training.worker_setup import (
    choose_checkpoints,
    choose_device,
    make_callbacks,
    make_reports,
    make_trainer,
    run_facts,
)

if TYPE_CHECKING:
    from .coordination.reports import RoundReporter

log = logging.getLogger(__name__)

#: Names this worker's log folder, where the launcher has chosen one for it.
FOLDER_VARIABLE = "ESYNC_DEVICE_FOLDER"


def main(arguments: list[str] | None = None) -> int:
    """Run the role that the environment names; return the exit code."""
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
    options = read(program.name("python -m esync.worker"), "Train a network on this device.", arguments)
    processes.set_niceness(processes.niceness_of_emulated(options.step_time))
    return program.run("worker", lambda watchdog: _work(options, watchdog))


def _work(options: argparse.Namespace, watchdog: Watchdog) -> int:
    """Set everything up, train, and leave the cluster."""
    import math

    import numpy as np

    from .algorithms.loading import is_at_fault
    from .data import Batches, find_data_dir, load, partition, redistribute
    from .evaluate import EvaluationProcess
    from .exchange import JobAbortedError, SlotLostError
    from .exchange.collectives.worker_exchange import CollectiveExchange, check_start
    from .gluon.randomness import reseed
    from .models.networks import MODELS, build
    from .runtime.mxnet_import import mx
    from .runtime.progress import VARIABLE, ProgressReporter
    from .training.loop import DIVERGED, DivergedError, Iteration, train, warm_up
    from .training.round_callbacks import LogClock, PeriodicEvaluation, RoundCallbacks
    from .training.round_log import RoundLog
    from .world import RealWorld

    if options.algorithm.sends != "nothing":
        if options.collective == "ps":
            Cluster.from_environment()  # what is missing there is told before anything takes long
        else:
            check_start(options.collective)
        if choose_algorithm(options).asks_state_server:
            state_server_address(given_state_server(options))
    expand_paths(options)
    data_dir = find_data_dir(options.data_dir, options.dataset)
    dataset = load(options.dataset, data_dir)
    context, device = choose_device(options)
    hybridize = not options.no_hybridize
    net = build(options.network, dataset.classes, context, options.seed, hybridize, dataset.channels)
    lease = options.lease if options.elastic else math.inf
    timeouts = options.start_timeout, options.round_timeout
    world = RealWorld(
        options.step_time,
        watchdog,
        *timeouts,
        lease,
        options.straggle,
        options.collective,
        options.wait_for_replacement,
    )
    checkpoints = choose_checkpoints(options)
    trainer = make_trainer(net, options, world, len(dataset.train_labels), checkpoints)

    def batches(indices: np.ndarray, seed: tuple[int, ...]) -> Batches:
        return Batches(dataset.train_images, dataset.train_labels, indices, options.batch_size, seed)

    def begin() -> None:
        world.device.stagger()
        reseed(trainer, options.seed)

    def iteration(batches: Batches) -> Iteration:
        loss, size = mx.gluon.loss.SoftmaxCrossEntropyLoss(), MODELS[options.network].size
        return Iteration(net, loss, batches, size, context, begin)

    joined = False
    reports = None
    try:
        warm_up(trainer, iteration(batches(np.arange(len(dataset.train_labels)), (options.seed,))))
        progress.report_event(progress.READY)
        trainer.start()
        progress.report_event(progress.JOINED, rank=trainer.rank, round=trainer.round)
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
        reporter = ProgressReporter(options.quiet, machine=os.environ.get(VARIABLE) == "json")
        reporter.say(f"worker {trainer.rank} of {trainer.workers} on {device}, logs in {logs.folder}")
        if trainer.replacement:
            reporter.say(f"takes the place of a worker that is gone, after round {trainer.round}")
        if resumed is not None:
            reporter.say(f"going on from the checkpoint of round {resumed} in {options.checkpoint_dir}")
        elif options.resume and not trainer.replacement:
            reporter.say(f"no checkpoint in {options.checkpoint_dir} yet: beginning from the beginning")
        evaluations = None
        if trainer.rank == 0 and not options.no_evaluation:
            values, images = trainer.replica.size, options.test_images
            evaluator = EvaluationProcess(options.network, options.dataset, str(data_dir), values, images)
            evaluations = PeriodicEvaluation(evaluator, options.eval_duration, options.target_accuracy)
        reports = make_reports(options, trainer, logs.folder.name)
        result, exchange = trainer.algorithm.result, trainer.algorithm.exchange
        step = result.step if result is not None and logged else 0
        started = time.time() - trainer.elapsed
        rounds = RoundCallbacks(
            make_callbacks(options, trainer.rank, reporter, logs, reports, started, step),
            {**run_facts(options, trainer), "device": device, "resumed": resumed},
            LogClock(trainer.world.device.now, trainer.round, trainer.elapsed),
            evaluations,
            exchange if isinstance(exchange, CollectiveExchange) else None,
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
        reporter.say(f"done after {trainer.round} rounds")
        progress.report_event(progress.FINISHED)
        if trainer.rank == 0 and not options.no_export:  # before the goodbye: should it die, another one can do it
            with trainer.mean_statistics():
                _export(net, options, logs.folder, context, reporter.say, dataset.channels)
    except (JobAbortedError, SlotLostError) as error:
        if isinstance(error, JobAbortedError):
            _farewell(reports, str(error))
        trainer.close()
        raise
    except BaseException as error:
        foreseen = isinstance(error, ExpectedError)
        if not foreseen and is_at_fault(type(trainer.algorithm), error):
            progress.report_event(progress.OVER, reason=str(error))  # a replacement would meet it again
        elif joined and SUPERVISED_VARIABLE in os.environ and not foreseen:
            # The launcher starts a replacement; the others wait for that, or go on without this
            # worker.
            by_signal = isinstance(error, InterruptedBySignalError)
            how = f"ended by {error}" if by_signal else f"ends: {error or type(error).__name__}"
            log.error("worker %d %s", trainer.rank, how, exc_info=not by_signal)
            program.exit_now(1)
        reason = f"worker {trainer.rank}: {error or type(error).__name__}"
        if not (joined and trainer.finished):
            trainer.abort(reason)
        _farewell(reports, reason)
        trainer.close()
        raise
    _farewell(reports, f"done after {trainer.round} rounds")
    trainer.close()
    progress.report_event(progress.DONE)
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
    from .models import export
    from .models.networks import MODELS
    from .training.round_log import MODEL_FOLDER

    folder = Path(options.checkpoint_dir or log_folder) / MODEL_FOLDER
    size = MODELS[options.network].size
    export.save(net, folder, (1, channels, size, size), context, say)
    say(f"final model in {folder}")


def _farewell(reports: "RoundReporter | None", reason: str) -> None:
    """Wait for the last reports to reach the state server."""
    if reports is not None:
        reports.close(reason)


if __name__ == "__main__":
    output.install()
    program.exit_now(main())
