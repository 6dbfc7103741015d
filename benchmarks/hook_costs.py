"""What does the hook of FedProx cost?

    OMP_NUM_THREADS=1 python benchmarks/hook_costs.py [--json FILE]

For each network, on random images of Fashion-MNIST's shape: an iteration of local SGD (forward,
backward, the step); and beside it FedProx's `before_local_step`, which goes block by block, the
same on whole arrays, and a hook that touches nothing. They take turns; the least of each in
milliseconds, and how long the hook takes in iterations.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures
from harness.timing import in_turns, seconds_of

import esync  # noqa: F401 - before mxnet
from esync.algorithms import FedProx, ModelView
from esync.gluon.optimizers import SGD
from esync.gluon.replica import Replica
from esync.models.networks import build
from esync.runtime.mxnet_import import mx

#: Network → batch size → repetitions.
CASES = {"lenet": {8: 300, 64: 200}, "resnet18-v1": {8: 30, 64: 20}}
MU = 0.01


def whole(model: ModelView) -> None:
    """Apply FedProx's term in one line."""
    model.gradient += MU * (model.weights - model.anchor)


def nothing(model: ModelView) -> None:
    """Touch nothing."""


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds of some work, including what the device still has to do for it."""

    def done() -> None:
        work()
        mx.nd.waitall()

    mx.nd.waitall()
    return seconds_of(done)


def measure(network: str, batch: int, repetitions: int) -> dict[str, Any]:
    """Return the figures of one case."""
    net = build(network, 10, mx.cpu(), seed=0)
    images, labels = mx.nd.random.uniform(shape=(batch, 1, 28, 28)), mx.nd.array(np.arange(batch) % 10)
    net(images)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), SGD(learning_rate=1e-3), kvstore=None)

    def iterate() -> None:
        with mx.autograd.record():
            losses = loss(net(images), labels)
        losses.backward()
        trainer.step(batch)

    replica = Replica(trainer._params, trainer.step)
    replica.keep_anchor()
    hooks = {"fedprox": FedProx(prox_mu=MU).before_local_step, "whole arrays": whole, "nothing": nothing}
    ways: dict[str, Callable[[], Any]] = {
        "iteration": iterate,
        **{name: partial(replica.call_hook, hook, batch) for name, hook in hooks.items()},
    }
    taken = in_turns({name: partial(seconds, way) for name, way in ways.items()}, repetitions)
    least = {name: 1e3 * min(values) for name, values in taken.items()}
    return {
        "network": network,
        "weights": replica.weights.size,
        "batch": batch,
        **{name: round(value, 3) for name, value in least.items()},
        "share": round(least["fedprox"] / least["iteration"], 3),
    }


def main() -> None:
    """Measure all cases."""
    parser = program.parser(__doc__)
    options = parser.parse_args()
    figures = []
    for network, batches in CASES.items():
        for batch, repetitions in batches.items():
            figures.append(measure(network, batch, repetitions))
            print(*(f"{name} {value}" for name, value in figures[-1].items()), sep=", ", flush=True)
    write_figures(options.json, {"cases": figures})


if __name__ == "__main__":
    program.run(main)
