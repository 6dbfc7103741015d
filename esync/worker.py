"""Train a network on one device, with the other workers of a cluster: `python -m esync.worker`.

    DMLC_PS_ROOT_URI=10.1.1.34 DMLC_PS_ROOT_PORT=9091 DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=6 \
        python -m esync.worker -g 0 -m esync -n resnet18-v1 -ip 10.1.1.34

With DMLC_ROLE=server or scheduler in the environment, this program runs that role, so that all processes
have the same command line.
"""

import argparse
import logging
import os
import socket
import sys
from functools import partial
from pathlib import Path

from .arguments import choose_algorithm, expand_paths, read, state_server_of
from .loggers import chosen_loggers, tensorboard
from .runtime import output, preemption, processes, program, progress
from .runtime.environment import ROLES, Cluster, state_server_address
from .runtime.watchdog import Watchdog
from .runtime.worker_environment import WorkerEnvironment
from .training.run_folder import mode_folder, same_below
from .training.worker_setup import choose_checkpoints, choose_device, flag_facts, make_trainer

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run the role in the environment; return the exit code."""
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
    options = read(
        program.name("python -m esync.worker"), "Train a network on this device.", arguments, environment=os.environ
    )
    processes.set_niceness(processes.niceness_of_emulated(options.step_time))
    return program.run("worker", lambda watchdog: _work(options, watchdog))


def _work(options: argparse.Namespace, watchdog: Watchdog) -> int:
    """Set everything up, train, and leave the cluster."""
    import math
    import random

    import numpy as np

    from .data import Batches, load, partition, shuffles
    from .data.partitions import refuse_speeds
    from .evaluate import NamedEvaluation
    from .exchange.collectives.worker_exchange import check_start
    from .gluon.randomness import reseed
    from .models.networks import build, input_shape, input_size
    from .runtime.mxnet_import import mx
    from .training.accuracy import spread
    from .training.batch_norm import layers_with_statistics, reestimate_statistics
    from .training.loop import Iteration, PartitionedData, train, warm_up
    from .training.run import Run
    from .world import RealWorld

    algorithm = choose_algorithm(options)
    if algorithm.sends != "nothing":
        if options.collective == "ps":
            Cluster.from_environment()  # reports missing variables before anything takes long
        else:
            check_start(options.collective)
        if algorithm.asks_state_server:
            state_server_address(state_server_of(options))
    refuse_speeds(options.partition)
    expand_paths(options)
    logs, events = Path(options.log_dir), options.tensorboard
    if options.name:
        logs = mode_folder(options) / socket.gethostname()
        events = events and same_below(events, logs, options.log_dir)
    if events:
        tensorboard.require()  # before anything takes long
    loggers = chosen_loggers(options.wandb, options.mlflow)
    dataset = load(options.dataset, options.data_dir)
    context, device = choose_device(options)
    net = build(options.network, dataset.classes, context, options.seed, not options.no_hybridize, dataset.shape)
    estimated = options.reestimate_statistics
    if estimated is not None:
        layers_with_statistics(net)  # refuses a user's network without any before the training
    environment = WorkerEnvironment.read()
    world = RealWorld(
        options.step_time,
        watchdog,
        options.start_timeout,
        options.round_timeout,
        options.lease if options.elastic else math.inf,
        options.straggle,
        options.collective,
        options.wait_for_replacement,
        per_host=environment.per_host,
        host_group=environment.host_group,
        step_times=environment.step_times,
    )
    evaluation = NamedEvaluation(options.network, options.dataset, options.data_dir, options.test_images, estimated)

    def before_export() -> None:
        if estimated is not None:
            reestimate_statistics(net, spread(dataset.train_images, estimated), input_size(options.network), context)

    checkpoints = choose_checkpoints(options)
    run = Run(
        logs,
        tensorboard=events,
        loggers=loggers,
        evaluate=None if options.no_evaluation else evaluation,
        every=options.eval_duration,
        target=options.target_accuracy,
        checkpoints=checkpoints,
        net=None if options.no_export else net,
        input_shape=input_shape(options.network, dataset.shape),
        before_export=before_export,
        facts={
            **flag_facts(options, algorithm, dataset.digest),
            **({"class_names": dataset.class_names} if dataset.class_names else {}),
        },
        device=device,
        overwrite=options.overwrite,
        quiet=options.quiet,
        state_server=state_server_of(options),
        job=options.job,
        weight_average=options.weight_average,
    )

    def batches(indices: np.ndarray, seed: tuple[int, ...] | None) -> Batches:
        images, labels = dataset.train_images, dataset.train_labels
        return Batches(images, labels, indices, lambda: trainer.batch_size(options.batch_size), seed)

    samples, digest = len(dataset.train_labels), dataset.digest
    with make_trainer(net, options, world, samples, run=run, data_digest=digest) as trainer:

        def begin() -> None:
            world.device.wait_for_turn()
            reseed(trainer, options.seed)

        def iteration(batches: Batches) -> Iteration:
            loss, size = mx.gluon.loss.SoftmaxCrossEntropyLoss(), input_size(options.network)
            return Iteration(net, loss, batches, size, context, begin)

        warm_up(trainer, iteration(batches(np.arange(len(dataset.train_labels)), (options.seed,))))
        # `begin` seeds by rank before each iteration; equal states here would be warned of at the start.
        np.random.seed()
        random.seed()
        trainer.start()
        dealt = partition(options.partition, dataset.train_labels, trainer.workers, options.seed)
        hold = partial(run.unrecognized_classes.hold, dataset.labels, dataset.train_labels)
        if trainer.rank == 0:
            hold(dealt.shares)
            if algorithm.leaves_out and trainer.workers > 1:
                text = "data of workers that are left out will be dealt to the others; --leave-out none prevents it"
                log.info("%s", text)
                progress.report_event(progress.SETTINGS, text=text)

        def share(indices: np.ndarray) -> Batches:
            return batches(indices, (options.seed, trainer.rank) if shuffles(options.partition) else None)

        data = PartitionedData(dealt, options.seed, options.redistribute, share, hold if trainer.rank == 0 else None)
        first_iteration = iteration(data.batches(trainer) or share(dealt.shares[trainer.rank]))
        if checkpoints is not None:
            checkpoints.track("batches", first_iteration)
        train(trainer, first_iteration, data=data)
    progress.report_event(progress.DONE)
    return preemption.EXIT_CODE if run.preempted else 0


if __name__ == "__main__":
    output.install()
    program.exit_now(main())
