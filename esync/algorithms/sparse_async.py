"""What GD-async, DGC-async and DGS share: after every iteration a sparse step up, a sparse difference back."""

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import config
from ..exchange import Payload, Service
from ..measure import GLOBAL_AGGREGATE
from ..sparse import check_finite
from .base import Algorithm, Hyper, Surroundings


class SparseAsync(Algorithm):
    """Asynchronous SGD whose messages hold what is largest; the rest waits on the worker, or on the server.

    The step (learning rate, momentum, weight decay) is made on the worker, with its own hyper-parameters of the moment.

    Args:
        ratio: share of each tensor's values that is sent.
        secondary_ratio: the same for what the server answers; 0: all that has changed.
        values: "float32" or "float16", on the wire.
        dense_below: tensors with fewer values are sent whole; 0: none is.
        statistics: which batch-norm statistics rank 0 evaluates and exports: "mean" of those that all workers have sent
            last (every SPARSE_STATISTICS_EVERY-th exchange carries them), or "rank0", its own, as published.
    """

    server_sgd = True
    synchronous = False
    own_statistics = True
    exchange_phase = GLOBAL_AGGREGATE
    in_checkpoints = False
    float32_only = True

    def __init__(
        self,
        ratio: float = config.SPARSE_RATIO,
        secondary_ratio: float = config.SPARSE_SECONDARY_RATIO,
        values: str = config.SPARSE_VALUES,
        dense_below: int = config.SPARSE_DENSE_BELOW,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(statistics)
        self._sent = 0  # exchanges of this process
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio is {ratio!r}, but should be above 0 and at most 1")
        if not 0 <= secondary_ratio <= 1:
            raise ValueError(f"secondary_ratio is {secondary_ratio!r}, but should be from 0 (off) to 1")
        if values not in ("float32", "float16"):
            raise ValueError(f"values is {values!r}, but should be 'float32' or 'float16'")
        if dense_below < 0:
            raise ValueError(f"dense_below is {dense_below!r}, but should be 0 (no tensor is sent whole) or more")
        self.ratio, self._dense_below, self._values = ratio, dense_below, values
        self._secondary_ratio = secondary_ratio

    @abstractmethod
    def compressor(self, selection: Any, workers: int) -> Any:
        """Makes the worker's side of the method (`sparse.compressors`)."""

    def momentum(self, hyper: Hyper) -> float:
        """The momentum of this moment."""
        return hyper.momentum

    def start(self, surroundings: Surroundings) -> None:
        """Connect, and begin with the common model."""
        from ..exchange.sparse_messages import answers_new_values
        from ..sparse.selection import Selection

        super().start(surroundings)
        tensors = self.replica.weights.sizes
        options = {
            "tensors": tensors,
            "secondary_ratio": self._secondary_ratio,
            "dense_below": self._dense_below,
            "values": self._values,
        }
        kept = not answers_new_values(self._secondary_ratio, self._values)  # the servers keep what each worker has
        exchange = self._join(Service("difference", synchronous=False, options=options, private=kept, sparse=True))
        self._begin(exchange)
        selection = Selection(tensors, self.ratio, self._dense_below)
        self._compressor = self.compressor(selection, exchange.workers)
        self._gradient = np.empty(self.replica.weights.size, np.float32)

    def step(self, batch_size: int) -> None:
        """Send the largest of what has been gathered, add what comes back to the weights."""
        if self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        self._end_iteration()
        hyper = self.surroundings.hyper()
        with self.recorder.phase(GLOBAL_AGGREGATE):
            replica = self.replica
            replica.open()
            step = self._compress(hyper, batch_size)
            rate, statistics = hyper.learning_rate, self._statistics()
            payload = Payload(None, samples=batch_size, learning_rate=rate, step=step, **statistics)
            result = self.exchange.start(payload, replica).wait()
            replica.close()
        self.local_iterations = 1
        self._sent += 1
        self._count(result)

    def _statistics(self) -> dict[str, Any]:
        """As in the dense modes, but only now and then: beside sparse messages statistics are not small."""
        due = self._sent % config.SPARSE_STATISTICS_EVERY == 0
        return super()._statistics() if due else {"statistics": None}

    def _compress(self, hyper: Hyper, batch_size: int) -> Any:
        gradient, weights = self._gradient, self.replica.weights
        # Weight decay and clipping are relative to the mean gradient: only the learning rate sees a multiple of it.
        self.replica.gradient(hyper.rescale / hyper.gradient_scale / batch_size).read(0, gradient.size, gradient)
        if hyper.weight_decay:
            decay = np.empty_like(gradient)
            weights.read(0, decay.size, decay)
            decay *= np.float32(hyper.weight_decay)
            gradient += decay
        check_finite(gradient)
        return self._compressor.compress(gradient, hyper.learning_rate * hyper.gradient_scale, self.momentum(hyper))


class SparseAsyncWithMomentum(SparseAsync):
    """With a momentum of its own, for an optimizer that has none; the other arguments as in `SparseAsync`."""

    def __init__(
        self,
        ratio: float,
        momentum: float,
        secondary_ratio: float,
        values: str,
        dense_below: int,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(ratio, secondary_ratio, values, dense_below, statistics)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum!r}, but should be 0 or more and below 1")
        self._momentum = momentum

    def momentum(self, hyper: Hyper) -> float:
        """The optimizer's, or the one given here."""
        return hyper.momentum or self._momentum

    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        """See `Algorithm.moving_without_gradient`."""
        return super().moving_without_gradient(momentum or self._momentum, weight_decay)
