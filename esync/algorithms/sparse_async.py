"""The base of GD-async, DGC-async and DGS: sparse exchanges after every iteration.

A worker sends a sparse step, and gets a sparse difference back.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from .. import config
from ..exchange import Payload, Source, Specification, values_of
from ..exchange.codecs.sparse import Differences, check_finite
from .assigned_weights import AssignedWeightsError
from .base import Algorithm
from .context import AlgorithmContext, Hyper
from .exchange_options import AsynchronousOptions
from .options import option


class SparseAsync(Algorithm):
    """Asynchronous SGD whose messages hold the largest values only.

    The rest waits on the worker, or on the server. The step (learning rate, momentum, weight decay)
    is taken on the worker, with its own present hyper-parameters. The latest batch-norm statistics
    are part of every SPARSE_STATISTICS_EVERY-th exchange of a worker.
    """

    class Options(AsynchronousOptions):
        """The options of the messages' sparsity."""

        ratio: float = option(
            config.SPARSE_RATIO,
            gt=0,
            le=1,
            flag="--sparse-ratio",
            per_device=True,
            help="share of each tensor's values that a worker sends",
        )
        secondary_ratio: float = option(
            config.SPARSE_SECONDARY_RATIO,
            ge=0,
            le=1,
            help="share of each tensor's values in a server's answer; 0: all that have changed",
        )
        values: Literal["float32", "float16"] = option(
            config.SPARSE_VALUES, flag="--sparse-values", help="type of the values on the wire"
        )
        dense_below: int = option(
            config.SPARSE_DENSE_BELOW,
            ge=0,
            flag="--sparse-dense-below",
            metavar="VALUES",
            help="tensors with fewer values are sent whole; 0: none",
        )

    options: Options
    synchronous = False
    elastic = True
    needs_gradients = True
    float32_only = True

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._sent = 0  # exchanges of this process

    @abstractmethod
    def compressor(self, selection: Any, workers: int) -> Any:
        """Make the worker's side of the method (`sparse.compressors`)."""

    def current_momentum(self, hyper: Hyper) -> float:
        """Return the present momentum."""
        return hyper.momentum

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        from ..exchange.codecs.sparse.selection import Selection

        super().start(context)
        self.replica.keep_anchor()
        tensors = self.replica.weights.sizes
        differences = self.options.model_dump(include={"secondary_ratio", "dense_below", "values"})
        options = {"tensors": tensors, **differences}
        private = not Differences(**differences).replace  # the servers keep what each worker has
        specification = Specification("difference", synchronous=False, options=options, private=private, sparse=True)
        exchange = self._join(specification)
        self._begin(exchange)
        selection = Selection(tensors, self.options.ratio, self.options.dense_below)
        self._compressor = self.compressor(selection, exchange.workers)
        self._gradient = np.empty(self.replica.weights.size, np.float32)

    def step(self, batch_size: int) -> None:
        """Send the largest of the gathered values, and add the answer to the weights."""
        self._prepare_gradient(batch_size)
        self._end_iteration()
        hyper = self.context.hyper()
        with self.recorder.phase(self.exchange_phase):
            replica = self.replica
            self._contribute()
            replica.open()
            if (assignment := replica.assigned_since_exchange(replica.vectors)) is not None:
                raise AssignedWeightsError(
                    f"the program has assigned {assignment} between two steps, but what workers and servers send each "
                    f"other in mode {self.name!r} are differences: use 'sync', or a mode with local iterations"
                )
            step = self._compress(hyper, batch_size)
            rate = hyper.learning_rate
            payload = Payload(samples=batch_size, learning_rate=rate, step=step, **self._with_statistics({}))
            result = self._start_exchange(payload, replica).wait()
            replica.close()
        self.iterations = 1
        self._sent += 1
        self._count(result)

    def unsent(self) -> dict[str, Any]:
        """See `Algorithm.unsent`; it includes this worker's statistics, which are rarely sent."""
        replica = self.replica
        replica.open()
        statistics = values_of(replica.statistics)
        replica.close()
        state = {"compressor": self._compressor.state(), "statistics": statistics, "exchanges": self._sent}
        return {**super().unsent(), **state}

    @override
    def restore_unsent(self, state: dict[str, Any]) -> None:
        super().restore_unsent(state)
        self._compressor.restore(state["compressor"])
        self._sent = state["exchanges"]
        replica = self.replica
        replica.open()
        if self._leads and self.evaluated_statistics == "mean":
            replica.keep_statistics(separate=True)  # the mean, which the checkpoint's model has
        replica.statistics.write(0, state["statistics"])
        replica.close()

    def _with_statistics(self, vectors: Mapping[str, Source]) -> dict[str, Any]:
        """Send statistics only every few exchanges, because they are large compared to sparse messages."""
        due = self._sent % config.SPARSE_STATISTICS_EVERY == 0
        return super()._with_statistics(vectors) if due else {"vectors": vectors}

    def _compress(self, hyper: Hyper, batch_size: int) -> Any:
        gradient, weights = self._gradient, self.replica.weights
        # Weight decay and clipping are relative to the mean gradient; `gradient_scale` affects only
        # the learning rate.
        self.replica.gradient(hyper.rescale / hyper.gradient_scale / batch_size).read(0, gradient.size, gradient)
        if hyper.weight_decay:
            decay = values_of(weights)
            decay *= np.float32(hyper.weight_decay)
            gradient += decay
        check_finite(gradient)
        return self._compressor.compress(
            gradient, hyper.learning_rate * hyper.gradient_scale, self.current_momentum(hyper)
        )


class SparseAsyncWithMomentum(SparseAsync):
    """`SparseAsync` with a momentum of its own, for an optimizer that has none."""

    class Options(SparseAsync.Options):
        """The options of the messages' sparsity, and the momentum."""

        momentum: float = option(0.0, ge=0, lt=1, shared="momentum", per_device=True)

    options: Options

    def current_momentum(self, hyper: Hyper) -> float:
        """Return the optimizer's momentum, or if it has none, that of the options."""
        return hyper.momentum or self.options.momentum

    @override
    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        return super().moving_without_gradient(momentum or self.options.momentum, weight_decay)
