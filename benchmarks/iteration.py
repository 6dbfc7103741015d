"""What does a worker's iteration cost beside a bare Gluon one? `python benchmarks/iteration.py [--json FILE]`.

Both train hybridized ResNet-18 (batch 64) on the same images in one process, taking turns: a plain Gluon loop with
gluon.Trainer, and the worker program's own loop with esync.Trainer and the ESync algorithm, state query included. A
real state server answers; a silent slow worker in its records keeps it from ever saying READY, so that no exchange is
counted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures
from harness.state_server import state_server
from harness.timing import in_turns, medians, seconds_of

import esync
from esync.algorithms import ESync
from esync.coordination.client import StateServerClient
from esync.data import Batches
from esync.data import load as load_dataset
from esync.exchange import Exchange, Result
from esync.models.networks import build
from esync.runtime.mxnet_import import mx
from esync.training.loop import Iteration
from esync.world import RealWorld

BATCH_SIZE = 64
TARGET = 1.05
WARM_UP = 20  # iterations before those that count
SLOW = 1e6  # seconds per iteration of the silent worker


class NoExchange(Exchange):
    """Stands where the parameter servers would: this benchmark never exchanges."""

    rank, workers, replacement, exchanges = 0, 2, False, 0
    job, resume_at = 1, -1

    def join(self, *terms: Any) -> None:
        """Nobody to join."""

    def heartbeat(self) -> None:
        """Nobody to tell."""

    def begin(self, *model: Any) -> Result:
        """Begin with the own weights."""
        return Result(0, 0, 0, 0.0, 0.0, False)


class World(RealWorld):
    """The real device and the real state server."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def exchange(self, specification: Any) -> Any:
        """None."""
        return NoExchange()  # type: ignore[abstract]

    def coordination(self, address: str | None, rank: int, *which: Any) -> StateServerClient:
        """One connection of the worker, after the silent worker has said how slow it is."""
        with StateServerClient("127.0.0.1", self._port, rank=1) as silent:
            silent.init(2, 0.02)
            silent.ask(0, SLOW)
        client = StateServerClient("127.0.0.1", self._port, rank=0)
        client.init = lambda *arguments: None  # type: ignore[method-assign]
        return client


def bare(images: np.ndarray, labels: np.ndarray) -> Callable[[], None]:
    """A plain Gluon iteration."""
    net = build("resnet18-v1", 10, mx.cpu(), seed=0)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03}, kvstore=None)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    batches = Batches(images, labels, np.arange(len(labels)), BATCH_SIZE, seed=0)

    def iterate() -> None:
        data, target = next(batches)
        inputs, targets = mx.nd.array(data), mx.nd.array(target)
        with mx.autograd.record():
            losses = loss(net(inputs), targets)
        losses.backward()
        trainer.step(BATCH_SIZE)
        mx.nd.waitall()

    return iterate


def worker(images: np.ndarray, labels: np.ndarray, port: int) -> Callable[[], None]:
    """The worker program's iteration."""
    net = build("resnet18-v1", 10, mx.cpu(), seed=0)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03}, algorithm=ESync(), world=World(port))
    trainer.start()
    batches = Batches(images, labels, np.arange(len(labels)), BATCH_SIZE, seed=0)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    iteration = Iteration(net, loss, batches, 28, mx.cpu(), lambda: esync.reseed(trainer, 0))

    def iterate() -> None:
        trainer.step(iteration.run(trainer.world.recorder))
        if trainer.exchanged:
            raise RuntimeError("the state server has said READY; this benchmark counts no exchange")

    return iterate


def main() -> int:
    """Measure both in turn, print the medians and the ratio; 1 where the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--iterations", type=int, default=200, help="of each (default: %(default)s)")
    arguments = parser.parse_args()
    dataset = load_dataset("fashion-mnist")
    images, labels = dataset.train_images, dataset.train_labels
    with state_server() as port:
        ways = {"bare Gluon": bare(images, labels), "esync worker": worker(images, labels, port)}
        timed = {way: partial(seconds_of, iterate) for way, iterate in ways.items()}
        seconds = medians(in_turns(timed, arguments.iterations, WARM_UP))
    ratio = seconds["esync worker"] / seconds["bare Gluon"]
    for way, median in seconds.items():
        print(f"  {way:14} median {1e3 * median:.1f} ms an iteration (ResNet-18, batch {BATCH_SIZE}, CPU)")
    print(f"ratio {ratio:.3f}; target: at most {TARGET}: {program.verdict(ratio <= TARGET)}")
    figures = {"seconds": seconds, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET}
    write_figures(arguments.json, figures)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    program.run(main)
