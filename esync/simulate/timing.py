"""Timing without numerics: the real algorithms and loop, but no gradients, and no MXNet.

The results are times, waits and bytes. The model has one weight, which is exchanged like any other
model, with messages as large as those of the network that it represents. The algorithms' hooks
(`Algorithm.before_local_step`, `after_exchange`) are not called, and their costs are not modelled.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..algorithms import Algorithm, AlgorithmContext, Hyper
from ..algorithms.context import ModelReplica
from ..exchange import STATISTICS, WEIGHTS, Flat
from ..exchange.codecs.sparse import Sparse
from ..exchange.protocol.round_state import Limits
from ..runtime.phase_timer import PhaseTimer
from ..trainer_status import TrainerStatus
from .world import SimulatedWorld


def _sizes(weights: int, statistics: int) -> dict[str, int]:
    return {WEIGHTS: weights, STATISTICS: statistics}


#: Network → sizes of its vectors, for ten classes and grey images (CIFAR's networks: colour images).
SIZES = {
    "alexnet": _sizes(57_029_322, 0),
    "resnet18-v1": _sizes(11_175_370, 9_600),
    "resnet50-v1": _sizes(23_541_130, 53_120),
    "resnet50-v2": _sizes(23_514_698, 45_572),
    "mobilenet-v1": _sizes(3_216_650, 21_888),
    "mobilenet-v2": _sizes(2_236_096, 34_112),
    "inception-v3": _sizes(21_805_482, 34_432),
    "lenet": _sizes(61_706, 0),
    "mlp": _sizes(50_890, 0),
    "cifar-resnet20-v1": _sizes(272_474, 1_568),
    "cifar-resnet32-v1": _sizes(466_906, 2_464),
    "cifar-resnet56-v1": _sizes(855_770, 4_256),
    "cifar-resnet110-v1": _sizes(1_730_714, 8_288),
}
#: Number of values in each vector of the exchanged model.
STAND_IN = 1


class _Vector(Flat):
    """A flat vector of one tensor; see `exchange.Source`."""

    def __init__(self, size: int) -> None:
        super().__init__(np.zeros(size, np.float32))
        self.sizes = [size]


class TimedReplica(ModelReplica):
    """A model with one weight; see `algorithms.context.ModelReplica`."""

    def __init__(self) -> None:
        self.weights, self.statistics = _Vector(STAND_IN), _Vector(0)
        self.further: dict[str, Any] = {}
        self.contributions: dict[str, Any] = {}
        self.size = STAND_IN
        self.iterations = 0  # see `overlap_merge.OverlapMerge`

    def add_vectors(self, names: Iterable[str]) -> None:
        """Add vectors as small as the weights."""
        for name in names:
            self.further[name] = self.contributions[name] = _Vector(STAND_IN)

    @property
    def common(self) -> tuple[_Vector, _Vector]:
        """See `replica.Replica`."""
        return self.weights, self.statistics

    def keep_common(self) -> "TimedReplica":
        """Return this replica; nothing is copied."""
        return self

    def begin_overlap(self) -> "TimedReplica":
        """Return this replica, which also receives the model."""
        return self

    def discard(self) -> None:
        """Do nothing: there is nothing to discard."""

    @property
    def vectors(self) -> dict[str, _Vector]:
        """The weights alone."""
        return {WEIGHTS: self.weights}

    def gradient(self, factor: float, vector: str = WEIGHTS) -> _Vector:
        """Return the weight instead of a gradient."""
        return self.weights

    def update(self) -> _Vector:
        """Return the weight instead of an update."""
        return self.weights

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Discard the values."""

    def add(self, step: Sparse) -> None:
        """Discard the values."""

    def put(self, step: Sparse) -> None:
        """Discard the values."""


class TimedTrainer(TrainerStatus):
    """The part of a `Trainer` that `loop.train` and `round_callbacks.RoundCallbacks` use.

    Args:
        algorithm: a new algorithm.
        world: the simulated interfaces.
        limits: limits of the run.
        capability: seconds per iteration, as a trial would measure them.
    """

    def __init__(self, algorithm: Algorithm, world: SimulatedWorld, limits: Limits, capability: float) -> None:
        self._algorithm, self.world, self.replica = algorithm, world, TimedReplica()
        self._limits, self._capability = limits, capability

    def start(self) -> None:
        """Find the other workers."""
        self.algorithm.start(
            AlgorithmContext(
                replica=self.replica,
                world=self.world,
                hyper=lambda: Hyper(1.0, 0.0, 0.0, 1.0),
                capability=lambda: self._capability,
                limits=self._limits,
            )
        )
        self.world.device.begin_run(self.elapsed)
        self.world.device.begin_iteration()

    def step(self, batch_size: int, samples: int | None = None) -> None:
        """Count one iteration."""
        self.algorithm.begin_step(batch_size)
        self.algorithm.step(batch_size)
        if not self.abandoned:
            self.world.recorder.samples += batch_size
        self.world.device.begin_iteration()

    def stop(self) -> None:
        """End the run after the current round."""
        self.algorithm.stop()

    def close(self) -> None:
        """Leave the job."""
        self.algorithm.close()


class TimedIteration:
    """Replaces `loop.Iteration`: virtual time passes, and nothing is computed."""

    data = None  # there is no data to divide

    def __init__(self, batch_size: Callable[[], int]) -> None:
        self._batch_size = batch_size

    def run(self, recorder: PhaseTimer) -> int:
        """Return the number of samples."""
        return self._batch_size()

    def put_back_batch(self) -> None:
        """Do nothing: there is no batch to put back."""
