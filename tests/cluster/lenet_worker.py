"""A worker of the equivalence tests.

It trains lenet on prescribed batches and saves its final weights.

Usage: python -m tests.cluster.lenet_worker JSON with the fields of `Plan`.
"""

import os
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster.worker_plan import WorkerPlan, run


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        rank: its slot.
        algorithm: "sync", "async", "dcasgd", or "esync" with a fixed number of local iterations.
        options: of the algorithm.
        batches: for each iteration the indices of the training images.
        weights: file that the final weights are saved to, as one flat array.
        optimizer: options of the optimizer.
        name: of the optimizer.
        turns: for each iteration, its place in the order of all workers' exchanges, from 0; empty
            for no order. A turn begins when the one before it is over, the pull of the new weights
            included.
        flags: of the worker program, which then say what algorithm, options and optimizer say
            otherwise.
    """

    rank: int
    algorithm: str
    batches: list[list[int]]
    weights: str
    options: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=lambda: {"learning_rate": 0.1})
    name: str = "sgd"
    turns: list[int] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


@cache
def dataset() -> Any:
    """The real data, read once."""
    from esync.data import load

    return load("fashion-mnist")


def images(indices: list[int]) -> tuple[Any, Any]:
    """A batch of real training images and labels, as NDArrays."""
    from esync.data import as_floats
    from esync.runtime.mxnet_import import mx

    return mx.nd.array(as_floats(dataset().train_images[indices])), mx.nd.array(dataset().train_labels[indices])


def backward(net: Any, indices: list[int]) -> int:
    """Leave the gradient of a batch in the network's parameters."""
    from esync.runtime.mxnet_import import mx

    data, labels = images(indices)
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), labels)
    loss.backward()
    return len(indices)


def flat_weights(net: Any) -> np.ndarray:
    """All weights in the order of the parameters' names."""
    return np.concatenate([p.data().asnumpy().reshape(-1) for _, p in sorted(net.collect_params().items())])


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    while not path.exists():
        time.sleep(0.001)


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS
    from esync.arguments import read
    from esync.models.networks import build
    from esync.runtime.mxnet_import import mx
    from esync.training.worker_setup import make_trainer
    from esync.world import RealWorld

    # Every worker begins with weights of its own: rank 0's have to win.
    net = build("lenet", 10, mx.cpu(), seed=plan.rank)
    if plan.flags:
        trainer = make_trainer(net, read("worker", "", plan.flags), RealWorld(), len(dataset().train_labels))
    else:
        algorithm = ALGORITHMS[plan.algorithm](**plan.options)
        trainer = esync.Trainer(net.collect_params(), plan.name, plan.optimizer, algorithm=algorithm)
    trainer.start()
    assert trainer.rank == plan.rank, f"rank {trainer.rank} instead of {plan.rank}"
    turns = Path(plan.weights).parent
    (turns / f"started-{plan.rank}").touch()
    for iteration, indices in enumerate(plan.batches):
        size = backward(net, indices)
        if plan.turns:
            turn = plan.turns[iteration]
            # The first waits until all have the initial model: who fetches it later finds that
            # commit in it.
            workers = range(int(os.environ["DMLC_NUM_WORKER"]))
            for name in [f"turn-{turn - 1}"] if turn else [f"started-{rank}" for rank in workers]:
                wait_for(turns / name)
        trainer.step(size)
        if plan.turns:
            (turns / f"turn-{turn}").touch()
    np.save(plan.weights, flat_weights(net))
    trainer.close()


if __name__ == "__main__":
    run(main, Plan)
