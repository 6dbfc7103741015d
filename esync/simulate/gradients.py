"""Real numerics: every worker's network, data and optimizer in this process, run by MXNet.

One computation runs at a time, on all cores. Each worker has its own parameters, gradients, optimizer
and workspace, so many workers with a large network need much memory.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Batches, load, partition, shuffles
from ..exchange import values_of
from ..gluon.flat_arrays import FlatArrays
from ..gluon.randomness import reseed
from ..models.networks import build, input_size
from ..runtime.errors import ExpectedError
from ..runtime.evaluation_result import EvaluationResult
from ..runtime.files import atomic_path, through_memory
from ..runtime.mxnet_import import mx
from ..runtime.phase_timer import PhaseTimer
from ..training.accuracy import AccuracyEvaluator
from ..training.loop import Iteration, PartitionedData
from ..training.unrecognized_classes import UnrecognizedClasses
from ..training.worker_setup import make_trainer
from .world import SimulatedWorld


class GradientNumerics:
    """Creates the workers' trainers and iterations, as the worker program does with the same flags.

    Args:
        options: the worker's flags.
        workers: number of workers.
        initial_model: file of the workers' initial model, as written by `write_model`; None
            initializes the model from the seed.

    Raises:
        ExpectedError: the file cannot be read, or is not a model of this network.

    Attributes:
        seconds: total real time of gradients and accuracies, in seconds.
        gradients: number of computed gradients.
    """

    evaluates = True
    wire: Mapping[str, int] | None = None

    def __init__(self, options: argparse.Namespace, workers: int, initial_model: Path | None = None) -> None:
        self._options, self._initial_model = options, initial_model
        self.dataset = load(options.dataset, options.data_dir)
        self.samples, self.data_digest = len(self.dataset.train_labels), self.dataset.digest
        self._dealt = partition(options.partition, self.dataset.train_labels, workers, options.seed)
        self._unrecognized_classes = UnrecognizedClasses()
        self._hold(self._dealt.shares)
        self._context = mx.cpu() if options.cpu or not mx.context.num_gpus() else mx.gpu(options.gpu or 0)
        self._nets: dict[int, Any] = {}
        self._evaluated: Any = None  # network used for accuracies
        self.seconds = {"gradients": 0.0, "evaluation": 0.0}
        self.gradients = 0

    def start(self, rank: int, world: SimulatedWorld) -> tuple[Any, "TimedGradients"]:
        """Return a new trainer and its iterations; a replacement reuses the memory of its slot's network."""
        options = self._options
        net = self._nets.get(rank)
        if net is None:
            net = self._nets[rank] = self._build()
        trainer = make_trainer(net, options, world, self.samples, data_digest=self.dataset.digest)
        with trainer.trial():
            pass  # a trial returns the device's step time without virtual time passing
        images, labels = self.dataset.train_images, self.dataset.train_labels

        def batches(indices: np.ndarray) -> Batches:
            seed = (options.seed, rank) if shuffles(options.partition) else None
            return Batches(images, labels, indices, lambda: trainer.batch_size(options.batch_size), seed)

        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        size = input_size(options.network)
        seed = (lambda: reseed(trainer, options.seed)) if _draws(net) else None  # it takes as long as a small network
        iteration = Iteration(net, loss, batches(self._dealt.shares[rank]), size, self._context, seed)
        changed = self._hold if rank == 0 else None
        return trainer, TimedGradients(
            iteration, self, PartitionedData(self._dealt, options.seed, False, batches, changed)
        )

    def unrecognized_classes(self) -> UnrecognizedClasses:
        """Return the callback that warns of classes that are never recognized."""
        return self._unrecognized_classes

    def _hold(self, shares: Sequence[np.ndarray]) -> None:
        self._unrecognized_classes.hold(self.dataset.labels, self.dataset.train_labels, shares)

    def evaluate(self, weights: Any, statistics: Any, every_sample: bool = False) -> EvaluationResult:
        """Evaluate these values on all test images (`every_sample`), or on --test-images of them."""
        begun = time.perf_counter()
        if self._evaluated is None:
            net = self._evaluated = self._build()
            parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
            self._arrays = [
                FlatArrays(lambda: [p.data() for p in parameters if p.grad_req != "null"]),
                FlatArrays(lambda: [p.data() for p in parameters if p.grad_req == "null"]),
            ]
            options = self._options
            self._evaluate = AccuracyEvaluator(
                net,
                self.dataset,
                input_size(options.network),
                self._context,
                options.test_images,
                options.reestimate_statistics,
            )
        for source, target in zip((weights, statistics), self._arrays, strict=True):
            target.open()
            target.write(0, values_of(source))
            target.close()
        result = self._evaluate(every_sample)
        self.seconds["evaluation"] += time.perf_counter() - begun
        return result

    def _build(self) -> Any:
        options = self._options
        hybridize, shape = not options.no_hybridize, self.dataset.shape
        net = build(options.network, self.dataset.classes, self._context, options.seed, hybridize, shape)
        if self._initial_model is not None:
            self._load(net, self._initial_model)
        return net

    def _load(self, net: Any, path: Path) -> None:
        try:
            path.open("rb").close()  # MXNet's errors do not say why
            net.load_parameters(str(path), ctx=self._context)
        except OSError as error:
            raise ExpectedError(f"--initial-model {path}: {error.strerror or error}") from None
        except (ValueError, AssertionError, mx.MXNetError):
            raise ExpectedError(f"--initial-model {path}: not the parameters of {self._options.network}") from None

    def write_model(self, path: Path) -> None:
        """Write the parameters of the most recently evaluated model, which is the final one.

        The file's folder is created.

        Raises:
            ExpectedError: the file cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary, through_memory(temporary) as memory:
                self._evaluated.save_parameters(str(memory))
        except OSError as error:
            raise ExpectedError(f"--final-model {path}: {error.strerror or error}") from None


class TimedGradients:
    """Iterations of one worker, whose real time is measured.

    Attributes:
        data: the worker's share of the data.
    """

    def __init__(self, iteration: Iteration, numerics: GradientNumerics, data: PartitionedData) -> None:
        self._iteration, self._numerics, self.data = iteration, numerics, data

    @property
    def batches(self) -> Batches:
        """The stream of batches, which may be replaced between iterations."""
        return self._iteration.batches

    @batches.setter
    def batches(self, batches: Batches) -> None:
        self._iteration.batches = batches

    def run(self, recorder: PhaseTimer) -> int:
        """See `loop.Iteration.run`."""
        begun = time.perf_counter()
        samples = self._iteration.run(recorder)
        mx.nd.waitall()
        self._numerics.seconds["gradients"] += time.perf_counter() - begun
        self._numerics.gradients += 1
        return samples

    def put_back_batch(self) -> None:
        """See `loop.Iteration.put_back_batch`."""
        self._iteration.put_back_batch()


def _draws(net: Any) -> bool:
    """Return whether an iteration of this network draws random numbers."""
    draws = isinstance(net, mx.gluon.nn.Dropout)
    return draws or any(_draws(child) for child in net._children.values())
