"""Real numerics: every worker's network, data and optimizer in this process, computed by MXNet.

One computation runs at a time and may use all cores. Each worker has parameters, gradients and an
optimizer of its own; the memory of the forward and backward pass belongs to each network, too, so
many workers of a large network need much.
"""

import argparse
import time
from collections.abc import Mapping
from typing import Any

from ..data import Batches, find_data_dir, load, partition
from ..exchange import values_of
from ..gluon.flat_arrays import FlatArrays
from ..gluon.randomness import reseed
from ..models.networks import MODELS, build
from ..runtime.mxnet_import import mx
from ..runtime.phase_timer import PhaseTimer
from ..training.accuracy import accuracy, spread
from ..training.loop import Iteration
from ..training.worker_setup import make_trainer
from .world import SimulatedWorld


class GradientNumerics:
    """Makes the workers' trainers and iterations, as the worker program would with the same flags.

    Args:
        options: the worker's flags.
        workers: how many there are.

    Attributes:
        seconds: of real time that gradients and accuracies took so far.
        gradients: how many were computed.
    """

    evaluates = True
    wire: Mapping[str, int] | None = None

    def __init__(self, options: argparse.Namespace, workers: int) -> None:
        self._options = options
        self.dataset = load(options.dataset, find_data_dir(options.data_dir, options.dataset))
        self.samples = len(self.dataset.train_labels)
        self._shares = partition(options.partition, self.dataset.train_labels, workers, options.seed).shares
        self._context = mx.cpu() if options.cpu or not mx.context.num_gpus() else mx.gpu(options.gpu or 0)
        self._every = self.dataset.test_images, self.dataset.test_labels
        self._some = spread(*self._every, options.test_images)
        self._nets: dict[int, Any] = {}
        self._judge: Any = None
        self._judged: list[FlatArrays] = []
        self.seconds = {"gradients": 0.0, "evaluation": 0.0}
        self.gradients = 0

    def start(self, rank: int, world: SimulatedWorld) -> tuple[Any, "TimedGradients"]:
        """A new trainer and its iterations; a worker that takes over a slot takes over the network's memory, too."""
        options = self._options
        net = self._nets.get(rank)
        if net is None:
            net = self._nets[rank] = self._build()
        trainer = make_trainer(net, options, world, self.samples)
        with trainer.trial():
            pass  # no time passes in a trial: the device's own step time is what it finds
        batches = Batches(
            self.dataset.train_images,
            self.dataset.train_labels,
            self._shares[rank],
            options.batch_size,
            (options.seed, rank),
        )
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        size = MODELS[options.network].size
        seed = (lambda: reseed(trainer, options.seed)) if _draws(net) else None  # it takes as long as a small network
        iteration = Iteration(net, loss, batches, size, self._context, seed)
        return trainer, TimedGradients(iteration, self)

    def accuracy(self, weights: Any, statistics: Any, every_image: bool = False) -> float:
        """Accuracy of these values on the test images that are evaluated, or on every one."""
        begun = time.perf_counter()
        if self._judge is None:
            self._judge = self._build()
            parameters = [parameter for _, parameter in sorted(self._judge.collect_params().items())]
            self._judged = [
                FlatArrays(lambda: [p.data() for p in parameters if p.grad_req != "null"]),
                FlatArrays(lambda: [p.data() for p in parameters if p.grad_req == "null"]),
            ]
        for source, target in zip((weights, statistics), self._judged, strict=True):
            target.open()
            target.write(0, values_of(source))
            target.close()
        images, labels = self._every if every_image else self._some
        share = accuracy(self._judge, images, labels, MODELS[self._options.network].size, self._context)
        self.seconds["evaluation"] += time.perf_counter() - begun
        return share

    def _build(self) -> Any:
        options = self._options
        # Names that are counted begin anew, as in a process of its own: their order is the order of
        # the values.
        with mx.name.NameManager():
            hybridize, channels = not options.no_hybridize, self.dataset.channels
            return build(options.network, self.dataset.classes, self._context, options.seed, hybridize, channels)


class TimedGradients:
    """Iterations of one worker whose real time is counted."""

    def __init__(self, iteration: Iteration, numerics: GradientNumerics) -> None:
        self._iteration, self._numerics = iteration, numerics

    def run(self, recorder: PhaseTimer) -> int:
        """See `loop.Iteration.run`."""
        begun = time.perf_counter()
        samples = self._iteration.run(recorder)
        mx.nd.waitall()
        self._numerics.seconds["gradients"] += time.perf_counter() - begun
        self._numerics.gradients += 1
        return samples

    def give_back(self) -> None:
        """See `loop.Iteration.give_back`."""
        self._iteration.give_back()


def _draws(net: Any) -> bool:
    """Return whether an iteration of this network draws random numbers."""
    found = isinstance(net, mx.gluon.nn.Dropout)
    return found or any(_draws(child) for child in net._children.values())
