"""A worker of the tests of batch norm's statistics.

It has a Gluon loop of its own, which writes down its own statistics and the mean.

Usage: python -m tests.cluster.statistics_worker JSON with the fields of `Plan`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esync.runtime.mxnet_import import mx
from tests.cluster.resuming_worker import build
from tests.cluster.worker_plan import WorkerPlan, run


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        algorithm: a name, with `options`.
        out: file for the statistics: "own" at every exchange, one row each, at the "begin" and at
            the end ("mean").
        rounds: of the whole run.
        directory: of checkpoints; "": none.
        resume: whether it goes on from one.
    """

    algorithm: str
    out: str
    rounds: int = 30
    options: dict[str, Any] = field(default_factory=dict)
    directory: str = ""
    resume: bool = False


def statistics(net: Any) -> np.ndarray:
    """Batch norm's running means and variances, flat."""
    mx.nd.waitall()  # a static graph's statistics may still be on their way when the loss is there
    untrained = [p for _, p in sorted(net.collect_params().items()) if p.grad_req == "null"]
    return np.concatenate([parameter.data().asnumpy().reshape(-1) for parameter in untrained])


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS, Schedule
    from esync.data import Batches, load
    from esync.exchange.protocol.round_state import Limits

    options = dict(plan.options)
    if plan.algorithm == "sync-switch":
        options["schedule"] = Schedule(order="10", train_steps=(4, 4 + 2 * plan.rounds))
        options["batch_size"] = 16
    net, loss = build(), mx.gluon.loss.SoftmaxCrossEntropyLoss()
    checkpoints = esync.Checkpoints(plan.directory, resume=plan.resume) if plan.directory else None
    trainer = esync.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": 0.01},
        algorithm=ALGORITHMS[plan.algorithm](**options),
        limits=Limits(rounds=plan.rounds),
        checkpoints=checkpoints,
    )
    dataset = load("fashion-mnist")
    trainer.start()
    begin = statistics(net)
    share = np.flatnonzero(dataset.train_labels[:5000] // 5 == trainer.rank)  # five classes each
    batches = Batches(dataset.train_images, dataset.train_labels, share, 16, (7, trainer.rank))
    own = []
    while not trainer.finished:
        images, labels = next(batches)
        with mx.autograd.record():
            losses = loss(net(mx.nd.array(images)), mx.nd.array(labels))
        losses.backward()
        own.append(statistics(net))
        trainer.step(len(labels))
    if checkpoints is not None:
        checkpoints.save()
    last = statistics(net)
    with trainer.mean_statistics():
        mean = statistics(net)
    assert statistics(net).tobytes() == last.tobytes()
    np.savez(plan.out, begin=begin, own=np.stack(own), mean=mean)
    trainer.close()


if __name__ == "__main__":
    run(main, Plan)
