"""What does a worker's iteration cost beside a bare Gluon one?

    python benchmarks/iteration.py [--device gpu0] [--json FILE]

Both train hybridized ResNet-18 (batch 64) on the same images in one process, taking turns: a plain
Gluon loop with gluon.Trainer, and the worker program's own loop with esync.Trainer and the ESync
algorithm, state query included. A real state server answers; a silent slow worker in its records
keeps it from ever saying READY, so that no exchange is counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures
from harness.timing import in_turns, medians, seconds_of

import esync
from esync.algorithms import ESync
from esync.coordination import JobSettings
from esync.coordination.client import StateServerClient
from esync.data import Batches
from esync.data import load as load_dataset
from esync.exchange import Exchange, Result
from esync.models.networks import build
from esync.planning.state_server_probe import state_server
from esync.runtime.mxnet_device import find_device
from esync.runtime.mxnet_import import mx
from esync.training.loop import Iteration
from esync.world import RealWorld

BATCH_SIZE = 64
TARGET = 1.05
WARM_UP = 20  # iterations before those that count
SLOW = 1e6  # seconds per iteration of the silent worker


class NoExchange(Exchange):
    """Takes the place of the parameter servers; this benchmark never exchanges."""

    rank, workers, replacement, exchanges = 0, 2, False, 0
    job, resume_at = 1, -1

    def join(self, *terms: Any) -> None:
        """Do nothing: there is nobody to join."""

    def heartbeat(self) -> None:
        """Do nothing: there is nobody to tell."""

    def begin(self, *model: Any) -> Result:
        """Begin with this worker's own weights."""
        return Result(0, 0, 0, 0.0, 0.0, False)


class World(RealWorld):
    """The real device and the real state server."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def exchange(self, specification: Any) -> Any:
        """Return an exchange that does nothing."""
        return NoExchange()  # type: ignore[abstract]

    def coordination(self, address: str | None, rank: int, *which: Any) -> StateServerClient:
        """Connect the worker, after a silent worker has reported how slow it is."""
        with StateServerClient("127.0.0.1", self._port, rank=1) as silent:
            silent.init(JobSettings(2, 0.02))
            silent.ask(0, SLOW)
        client = StateServerClient("127.0.0.1", self._port, rank=0)
        client.init = lambda *arguments: None  # type: ignore[method-assign]
        return client


def bare(images: np.ndarray, labels: np.ndarray, context: Any) -> Callable[[], None]:
    """Return a plain Gluon iteration."""
    net = build("resnet18-v1", 10, context, seed=0)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03}, kvstore=None)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    batches = Batches(images, labels, np.arange(len(labels)), BATCH_SIZE, seed=0)

    def iterate() -> None:
        data, target = next(batches)
        inputs, targets = mx.nd.array(data, ctx=context), mx.nd.array(target, ctx=context)
        with mx.autograd.record():
            losses = loss(net(inputs), targets)
        losses.backward()
        trainer.step(BATCH_SIZE)
        mx.nd.waitall()

    return iterate


@contextmanager
def worker(images: np.ndarray, labels: np.ndarray, context: Any, port: int) -> Iterator[Callable[[], None]]:
    """Provide the worker program's iteration."""
    net = build("resnet18-v1", 10, context, seed=0)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03}, algorithm=ESync(), world=World(port))
    trainer.start()
    batches = Batches(images, labels, np.arange(len(labels)), BATCH_SIZE, seed=0)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    iteration = Iteration(net, loss, batches, 28, context, lambda: esync.reseed(trainer, 0))

    def iterate() -> None:
        trainer.step(iteration.run(trainer.world.recorder))
        if trainer.exchanged:
            raise RuntimeError("the state server has said READY; this benchmark counts no exchange")

    yield iterate
    trainer.close()


def main() -> int:
    """Measure both in turn, print medians and ratio; return 1 if the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--iterations", type=int, default=200, help="of each (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, gpu0, … (default: %(default)s)")
    arguments = parser.parse_args()
    context = find_device(arguments.device, f"--device {arguments.device}", "--device cpu")[0]
    dataset = load_dataset("fashion-mnist")
    images, labels = dataset.train_images, dataset.train_labels
    with state_server() as port, worker(images, labels, context, port) as ours:
        ways = {"bare Gluon": bare(images, labels, context), "esync worker": ours}
        timed = {way: partial(seconds_of, iterate) for way, iterate in ways.items()}
        seconds = medians(in_turns(timed, arguments.iterations, WARM_UP))
    ratio = seconds["esync worker"] / seconds["bare Gluon"]
    print(f"ResNet-18, batch {BATCH_SIZE}, {arguments.device}:")
    for way, median in seconds.items():
        print(f"  {way:14} median {1e3 * median:.1f} ms an iteration")
    print(f"ratio {ratio:.3f}; target: at most {TARGET}: {program.verdict(ratio <= TARGET)}")
    figures = {"device": arguments.device, "seconds": seconds, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET}
    write_figures(arguments.json, figures)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    program.run(main)
