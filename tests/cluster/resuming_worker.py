"""A worker of the checkpoint tests, which may be killed.

It has a Gluon loop of its own, with dropout, batch norm and momentum.

Usage: python -m tests.cluster.resuming_worker JSON with the fields of `Plan`.
"""

import os
import signal
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cluster.worker_plan import WorkerPlan, run


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        algorithm: a name.
        directory: of the checkpoints, one every three rounds.
        weights: file that the final weights and statistics are saved to, as one flat array.
        rounds: of the whole run.
        killed: the round after which the process ends itself as kill -9 does; 0: never.
        optimizer: name, with `settings`.
    """

    algorithm: str
    directory: str
    weights: str
    rounds: int = 10
    killed: int = 0
    resume: bool = False
    optimizer: str = "sgd"
    settings: dict[str, float] = field(default_factory=lambda: {"learning_rate": 0.05, "momentum": 0.9})


def build() -> Any:
    """A small network with everything that has a state of its own."""
    from esync.runtime.mxnet_import import mx

    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 5, strides=2, in_channels=1), nn.BatchNorm(in_channels=4), nn.Activation("relu"))
        net.add(nn.Dropout(0.5), nn.Dense(10, in_units=4 * 12 * 12))
    mx.random.seed(1)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS
    from esync.data import Batches, load
    from esync.exchange.protocol.round_state import Limits
    from esync.runtime.mxnet_import import mx

    net, loss = build(), mx.gluon.loss.SoftmaxCrossEntropyLoss()
    checkpoints = esync.Checkpoints(plan.directory, every=3, keep=2, resume=plan.resume)
    trainer = esync.Trainer(
        net.collect_params(),
        plan.optimizer,
        dict(plan.settings),
        algorithm=ALGORITHMS[plan.algorithm](),
        limits=Limits(rounds=plan.rounds),
        checkpoints=checkpoints,
    )
    trainer.start()
    print(f"begins after round {trainer.round}", flush=True)
    dataset = load("fashion-mnist")
    share = np.arange(trainer.rank, 100, trainer.workers)  # an epoch is gone through several times
    batches = Batches(dataset.train_images, dataset.train_labels, share, 16, (7, trainer.rank))
    checkpoints.track("batches", batches)
    while not trainer.finished:
        esync.reseed(trainer, 7)
        images, labels = next(batches)
        with mx.autograd.record():
            losses = loss(net(mx.nd.array(images)), mx.nd.array(labels))
        losses.backward()
        trainer.step(len(labels))
        checkpoints.save_if_due()
        if plan.killed and trainer.round >= plan.killed:
            os.kill(os.getpid(), signal.SIGKILL)
    values = [p.data().asnumpy().reshape(-1) for _, p in sorted(net.collect_params().items())]
    np.save(plan.weights, np.concatenate(values))
    trainer.close()


if __name__ == "__main__":
    run(main, Plan)
