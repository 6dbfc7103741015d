"""A Gluon network as the algorithms see it: flat vectors, and a local step.

The vectors are weights, gradients and statistics. On a CPU the parameters' own memory is read and
written without a copy in between; on a GPU, or with another number format than float32, they pass
through host memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..algorithms.model_view import Hook, ModelView
from ..exchange import STATISTICS, WEIGHTS, Flat, values_of
from ..exchange.codecs.sparse import Sparse
from ..runtime.errors import AlgorithmResultError, ExpectedError
from ..runtime.mxnet_import import mx
from .flat_arrays import Difference, FlatArrays, Scaled
from .overlap_merge import OverlapMerge


class UnsuitableParametersError(ExpectedError, ValueError):
    """The network has parameters that cannot be exchanged; the message names one and says why."""


class Replica:
    """This worker's copy of the model.

    Args:
        parameters: initialized Gluon parameters, of one device, whose shapes are known.
        local_step: takes a local optimizer step; called with the batch size. It returns the
            learning rate that has multiplied the mean gradient; 0 where the step was left out.
        master: returns the float32 copy of a parameter that the local optimizer works on, see
            `master_weights`; None where there is none.
        scale: returns the factor that turns the gradients that backward leaves, divided by the
            batch size, into those of the mean loss.

    Attributes:
        weights: the trained values, grad_req other than "null"; their float32 copies where there
            are any.
        statistics: the values that are not trained: batch norm's statistics, frozen layers.
        further: name of each further vector that an algorithm exchanges → its common values, see
            `add_vectors`.
        contributions: the same names → what this worker sends for them.
        anchor: the weights of the last exchange (None unless `keep_anchor` was called).
        mean_statistics: the mean of all workers' latest statistics, where it is kept beside this
            worker's own (see `keep_statistics`); else None.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        local_step: Callable[[int], float],
        master: Callable[[Any], Any] = lambda parameter: None,
        scale: Callable[[], float] = lambda: 1.0,
    ) -> None:
        for parameter in parameters:
            _check(parameter)
        self._trained = [p for p in parameters if p.grad_req != "null"]
        untrained = [p for p in parameters if p.grad_req == "null"]
        if not self._trained:
            raise UnsuitableParametersError("no parameter of this network is trained (every grad_req is 'null')")
        self._master, self._scale = master, scale
        self.weights = FlatArrays(self._exchanged)
        self.gradients = FlatArrays(lambda: [p.grad() for p in self._trained])
        self.statistics = FlatArrays(lambda: [p.data() for p in untrained])
        self.further: dict[str, Flat] = {}
        self.contributions: dict[str, Flat] = {}
        self.anchor: np.ndarray | None = None
        self.mean_statistics: Flat | None = None
        self.local_step = local_step
        self._overlap_merge: OverlapMerge | None = None
        self._wait: Callable[[], None] = mx.nd.waitall

    def _exchanged(self) -> list[Any]:
        """Return the arrays that hold the weights."""
        return [p.data() if (copy := self._master(p)) is None else copy for p in self._trained]

    @property
    def size(self) -> int:
        """Number of all values, trained or not."""
        return self.weights.size + self.statistics.size

    def keep_anchor(self) -> None:
        """Keep a copy of the weights as they are written, for `update`."""
        self.anchor = np.zeros(self.weights.size, np.float32)

    def add_vectors(self, names: Iterable[str]) -> None:
        """Keep further vectors, each as long as the weights, which begin with zeros."""
        for name in names:
            self.further[name] = Flat(np.zeros(self.weights.size, np.float32))
            self.contributions[name] = Flat(np.zeros(self.weights.size, np.float32))

    @property
    def common(self) -> tuple[Flat | FlatArrays, Flat | FlatArrays]:
        """The common weights and statistics of the last exchange, or this worker's own.

        Its own are returned where the common ones are not kept beside them.
        """
        merge = self._overlap_merge
        if merge is not None:
            return merge.weights, merge.statistics
        return self.weights, self.mean_statistics or self.statistics

    def keep_statistics(self, own: bool) -> None:
        """Choose where the mean of the workers' statistics is put from now on; the replica is open.

        Args:
            own: True: beside this worker's own statistics, which stay as they are; False: in their
                place.
        """
        if not own:
            self.mean_statistics = None
        elif self.mean_statistics is None:
            self.mean_statistics = Flat(values_of(self.statistics))

    @contextmanager
    def with_mean_statistics(self) -> Iterator[None]:
        """Let the network have the common model within a with statement; the replica is closed."""
        pairs = [
            (own, common)
            for own, common in zip((self.weights, self.statistics), self.common, strict=True)
            if isinstance(common, Flat)
        ]
        self.open()
        kept = [values_of(own) for own, _ in pairs]
        for own, common in pairs:
            own.write(0, common.values)
        self.close()
        try:
            yield
        finally:
            self.open()
            for (own, _), values in zip(pairs, kept, strict=True):
                own.write(0, values)
            self.close()

    def enable_overlap(self) -> None:
        """Let the worker go on during exchanges: `open` waits for its own arrays only."""
        self._wait = self.settle

    def settle(self) -> None:
        """Wait until nothing reads or writes weights, gradients or statistics any more."""
        for arrays in (self.weights, self.gradients, self.statistics):
            arrays.settle()

    def begin_overlap(self) -> OverlapMerge:
        """Begin an exchange during which the worker goes on; the replica is open.

        Returns:
            The sink for the model that the exchange brings.
        """
        merge = self.keep_common()
        merge.begin()
        return merge

    def keep_common(self) -> OverlapMerge:
        """Keep the common model beside this worker's own, which is ahead; the replica is open.

        The anchor and the statistics as they are now are the first common ones.
        """
        if self.anchor is None:
            raise RuntimeError("keep_anchor was not called")
        if self._overlap_merge is None:
            self._overlap_merge = OverlapMerge(self.weights, self.statistics, self.anchor, self.further)
            self.statistics.read(0, self.statistics.size, self._overlap_merge.statistics.values)
        return self._overlap_merge

    def open(self) -> None:
        """Wait for the device, then give access to the current values until `close`."""
        self._wait()
        for arrays in (self.weights, self.gradients, self.statistics):
            arrays.open()

    def close(self) -> None:
        """Hand what was written back to the device."""
        if self.weights.close():
            for parameter in self._trained:
                if (copy := self._master(parameter)) is not None:
                    mx.nd.cast(copy, dtype=parameter.dtype, out=parameter.data().as_nd_ndarray())
        self.statistics.close()
        self.gradients.close()

    def call_hook(self, hook: Hook, batch_size: int | None = None, fixed_weights: bool = False) -> None:
        """Call a hook with a view of this model, and take over its changes; the replica is closed.

        Args:
            hook: called with a `ModelView`.
            batch_size: samples of the batch whose gradients are there; None: the view has no
                gradient.
            fixed_weights: the hook may not change the weights.

        Raises:
            AlgorithmResultError: the hook has returned something, as hooks of PyTorch do; it would
                be lost.
        """
        self._wait()
        view = ModelView(self, batch_size, self._scale() / (batch_size or 1), fixed_weights)
        returned = hook(view)
        if returned is not None:
            raise AlgorithmResultError(
                f"{hook.__qualname__} has returned {type(returned).__name__}, but should return nothing: it "
                "changes arrays of the model in place, or assigns new ones, as model.gradient = …"
            )
        view.write_back()
        self.close()

    def gradient(self, factor: float) -> Scaled:
        """Return the gradient that backward left (a sum over the batch), times a factor."""
        return Scaled(self.gradients, factor)

    def update(self) -> Difference:
        """Return how far the weights have moved since the last exchange: ESync's Δ."""
        if self.anchor is None:
            raise RuntimeError("keep_anchor was not called")
        return Difference(self.weights, self.anchor)

    def common_weights(self) -> np.ndarray | None:
        """Return the anchor if it is exactly what was written last, else None.

        It makes this a `codecs.base.KeepsCommon`.
        """
        exact = all(array.dtype == np.float32 for array in self._exchanged())
        return self.anchor if exact else None

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Take values of the common model; makes this an `exchange.ModelSink`."""
        if vector == WEIGHTS:
            self._write_weights(start, values)
        elif vector != STATISTICS:
            self.further[vector].write(start, values)
        elif self.mean_statistics is not None:
            self.mean_statistics.write(start, values)
        else:
            self.statistics.write(start, values)

    def _write_weights(self, start: int, values: np.ndarray) -> None:
        self.weights.write(start, values)
        if self.anchor is not None:
            anchor = self.anchor[start : start + values.size]
            if not np.may_share_memory(anchor, values):
                self.weights.read(start, start + values.size, anchor)  # float16 weights have rounded them

    def add(self, step: Sparse) -> None:
        """Add a sparse difference to the weights; makes this an `exchange.ModelSink`."""
        self.weights.add(*step)

    def put(self, step: Sparse) -> None:
        """Replace the weights at some places; makes this an `exchange.ModelSink`."""
        self.weights.put(*step)


def track_running_statistics(parameters: Iterable[Any]) -> None:
    """Make MXNet update the running statistics of batch norms without scale and shift on CPUs.

    There MXNet updates them in the backward pass, which skips a layer with nothing to train if
    nothing before it is trained, as the first one of ResNet v2 (apache/mxnet issue 18673). So the
    unused shift of such a layer gets a gradient, which nothing reads. In a network with frozen
    parts, a layer whose statistics are not zeros and ones is left alone: call it once the workers
    have their common values.
    """
    named = {parameter.name: parameter for parameter in parameters}
    frozen = any(each._differentiable and each.grad_req == "null" for each in named.values())
    for name, beta in named.items():
        prefix = name.removesuffix("beta")
        others = [f"{prefix}{each}" for each in ("gamma", "running_mean", "running_var")]
        if prefix == name or not named.keys() >= set(others) or beta.list_ctx()[0].device_type != "cpu":
            continue
        gamma, mean, variance = (named[each] for each in others)
        if beta._differentiable or gamma._differentiable or beta.data().grad is not None:
            continue
        if frozen and (mean.data().asnumpy().any() or (variance.data().asnumpy() != 1).any()):
            continue
        beta.data().attach_grad()


def _check(parameter: Any) -> None:
    if parameter._deferred_init or parameter._data is None:
        raise UnsuitableParametersError(
            f"parameter {parameter.name} is not initialized yet: call net.initialize(), and let one batch pass through "
            "the network before the trainer starts, or give esync.Run net and input_shape"
        )
    if len(parameter.list_ctx()) != 1:
        raise UnsuitableParametersError(
            f"parameter {parameter.name} lives on {len(parameter.list_ctx())} devices: start one process per device"
        )
    if parameter._stype != "default" or parameter._grad_stype != "default":
        raise UnsuitableParametersError(
            f"parameter {parameter.name} is sparse ({parameter._stype}, gradient {parameter._grad_stype}); only dense "
            "parameters can be exchanged"
        )
