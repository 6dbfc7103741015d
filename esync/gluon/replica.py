"""The interface of a Gluon network for algorithms: flat vectors, and a local step.

The vectors are weights, gradients and statistics. On a CPU the memory of the parameters is read and
written directly; on a GPU, or with types other than float32, values are copied through host memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from ..algorithms.assigned_weights import Assignment
from ..algorithms.context import ModelReplica
from ..algorithms.model_view import Hook, ModelView
from ..exchange import STATISTICS, WEIGHTS, Flat, values_of
from ..exchange.codecs.sparse import Sparse
from ..runtime.errors import AlgorithmResultError
from ..runtime.mxnet_import import mx
from .flat_arrays import Difference, FlatArrays, Scaled, Section, stored_values
from .overlap_merge import OverlapMerge
from .parameter_kinds import UnsuitableParametersError, fits, statistics, trained
from .weight_average import WeightAverage
from .weight_samples import Sampler


class Replica(ModelReplica):
    """This worker's copy of the model.

    Args:
        parameters: initialized Gluon parameters of the trainer, of one device, whose shapes are
            known.
        local_step: takes a local optimizer step; called with the batch size. It returns the
            learning rate that has multiplied the mean gradient; 0 where the step was left out.
        master: returns the float32 copy of a parameter that the local optimizer works on, see
            `master_weights`; None where there is none.
        others: parameters of the network that the trainer does not have, likewise; they count as
            not trained.
        sections: name of a vector → number of those parameters, in their order, whose weights it has,
            where the weights are exchanged as several vectors; None: they are one.
        scale: returns the factor that turns the gradients that backward leaves, divided by the
            batch size, into those of the mean loss.

    Attributes:
        weights: the trained values, grad_req other than "null"; their float32 copies where there
            are any.
        statistics: the values that are not trained: batch norm's statistics, frozen layers, those of
            the other parameters; without constants of other types (`parameter_kinds`), which no
            exchange touches.
        further: name of each further vector that an algorithm exchanges → its common values, see
            `add_vectors`.
        contributions: the same names → what this worker sends for them.
        anchor: the weights of the last exchange (None unless `keep_anchor` was called).
        mean_statistics: the mean of all workers' latest statistics, where it is kept beside this
            worker's own (see `keep_statistics`); else None.
        average: the average of the common models so far, to which `add_to_average` adds; None: none
            is kept.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        local_step: Callable[[int], float],
        master: Callable[[Any], Any] = lambda parameter: None,
        scale: Callable[[], float] = lambda: 1.0,
        others: Sequence[Any] = (),
        sections: Mapping[str, int] | None = None,
    ) -> None:
        for parameter in (*parameters, *others):
            _check(parameter)
        self._parameters = [(parameter, parameter.grad_req != "null") for parameter in parameters]
        self._trained = trained(parameters)
        untrained = [*statistics(parameters), *filter(fits, others)]
        if not self._trained:
            raise UnsuitableParametersError("no parameter of this network is trained (every grad_req is 'null')")
        self._types = [p.dtype for p in self._trained]
        self._master, self._scale = master, scale
        self.weights = FlatArrays(self._exchanged)
        self.gradients = FlatArrays(lambda: [_gradient(p) for p in self._trained])
        self.statistics = FlatArrays(lambda: [stored_values(p) for p in untrained])
        self._sections = {WEIGHTS: (0, self.weights.size)}
        if sections is not None:
            self._sections = dict(self._divide(parameters, sections))
        self._sampler = Sampler(self._exchanged)
        self.further: dict[str, Flat] = {}
        self.contributions: dict[str, Flat] = {}
        self.anchor: np.ndarray | None = None
        self.mean_statistics: Flat | None = None
        self.average: WeightAverage | None = None
        self._final_statistics: np.ndarray | None = None
        self._local_step = local_step
        self._overlap_merge: OverlapMerge | None = None
        self._wait: Callable[[], None] = mx.nd.waitall

    def _divide(self, parameters: Sequence[Any], sections: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the name of each vector, with the start and the size of its part of the weights."""
        remaining, start = iter(parameters), 0
        for name, count in sections.items():
            size = sum(parameter.data().size for parameter in trained(islice(remaining, count)))
            if not size:
                raise UnsuitableParametersError(
                    f"{name}: no parameter of this optimizer is trained (every grad_req is 'null'): leave it out, or "
                    "set grad_req before the trainer starts"
                )
            yield name, (start, size)
            start += size

    def _exchanged(self) -> list[Any]:
        """Return the arrays that hold the weights."""
        return [stored_values(p) if (copy := self._master(p)) is None else copy for p in self._trained]

    @property
    def size(self) -> int:
        """Number of all values, trained or not."""
        return self.weights.size + self.statistics.size

    def keep_anchor(self) -> None:
        """Keep a copy of the weights as exchanges write them; the replica is closed."""
        self.open()
        self.anchor = values_of(self.weights)
        self.close()

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

    @property
    def evaluated(self) -> tuple[Flat | FlatArrays, Flat | FlatArrays]:
        """The weights and statistics that are evaluated and end as the final model: the average, or the common ones."""
        average = self.average
        if average is None or average.weights is None or average.statistics is None:
            return self.common
        return average.weights, average.statistics

    def add_to_average(self) -> None:
        """Add the common model of the last exchange to the average, if that is due; the replica is closed."""
        if self.average is not None and self.average.due():
            self.open()
            self.average.add(*self.common)
            self.close()

    def keep_statistics(self, separate: bool) -> None:
        """Choose where the mean of the workers' statistics is put from now on; the replica is open.

        Args:
            separate: True: beside this worker's own statistics, which stay as they are; False: in their
                place.
        """
        if not separate:
            self.mean_statistics = None
        elif self.mean_statistics is None:
            self.mean_statistics = Flat(values_of(self.statistics))

    def keep_final_statistics(self) -> None:
        """Copy the statistics at the end of the run; the replica must be closed."""
        self.open()
        self._final_statistics = values_of(self.statistics)
        self.close()

    def restore_final_statistics(self) -> None:
        """Restore the statistics of the end of the run, after later forward passes; the replica must be closed."""
        if self._final_statistics is not None:
            self.open()
            self.statistics.write(0, self._final_statistics)
            self.close()

    @contextmanager
    def holding(self, model: tuple[Flat | FlatArrays, Flat | FlatArrays]) -> Iterator[None]:
        """Write `common` or `evaluated` to the network while the body of a with statement runs.

        The replica must be closed.
        """
        pairs = [
            (arrays, values)
            for arrays, values in zip((self.weights, self.statistics), model, strict=True)
            if isinstance(values, Flat)
        ]
        self.open()
        saved = [arrays.copies() for arrays, _ in pairs]
        for arrays, values in pairs:
            arrays.write(0, values.values)
        self.close()
        try:
            yield
        finally:
            self.open()
            for (arrays, _), copies in zip(pairs, saved, strict=True):
                arrays.put_back(copies)
            self.close()

    def enable_overlap(self) -> None:
        """Have `open` wait for this replica's arrays only, so that the worker trains during exchanges."""
        self._wait = self.settle

    def settle(self) -> None:
        """Wait until nothing reads or writes weights, gradients or statistics any more."""
        for arrays in (self.weights, self.gradients, self.statistics):
            arrays.settle()

    def begin_overlap(self) -> OverlapMerge:
        """Start an overlapped exchange; the replica must be open.

        Returns:
            The sink for the received model.
        """
        merge = self.keep_common()
        merge.begin()
        return merge

    def keep_common(self) -> OverlapMerge:
        """Keep the common model separately from this worker's, which is ahead of it.

        Initially it is the anchor and the present statistics. The replica must be open.
        """
        assert self.anchor is not None
        if self._overlap_merge is None:
            self._overlap_merge = OverlapMerge(self.weights, self.statistics, self.anchor, self.further)
            self.statistics.read(0, self.statistics.size, self._overlap_merge.statistics.values)
        return self._overlap_merge

    def open(self) -> None:
        """Wait for the device, then give access to the current values until `close`.

        Raises:
            UnsuitableParametersError: weights have got another type since the beginning.
        """
        if [p.dtype for p in self._trained] != self._types:
            raise UnsuitableParametersError(
                f"the type of the weights has changed during the run (net.cast): {self._trained[0].name} is "
                f"{np.dtype(self._trained[0].dtype)} now; convert the network before the trainer starts"
            )
        self._wait()
        for arrays in (self.weights, self.gradients, self.statistics):
            arrays.open()

    def close(self) -> None:
        """Copy written values back to the device."""
        if self.weights.close():
            for parameter in self._trained:
                if (copy := self._master(parameter)) is not None:
                    mx.nd.cast(copy, dtype=parameter.dtype, out=stored_values(parameter).as_nd_ndarray())
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

    def check_trained(self, frozen_allowed: bool) -> None:
        """Refuse a `grad_req` that has changed since the run began.

        Args:
            frozen_allowed: whether layers may be frozen, because the step is the local optimizer's.

        Raises:
            UnsuitableParametersError: what is exchanged would not be what is trained.
        """
        for parameter, was in self._parameters:
            if was == (parameter.grad_req != "null") or (was and frozen_allowed):
                continue
            advice = "freeze layers during a run in a mode with local iterations ('esync', 'local-sgd', …) only, or "
            raise UnsuitableParametersError(
                f"grad_req of parameter {parameter.name} was {'not ' if was else ''}'null' when the run began, and is "
                f"{parameter.grad_req!r} now: {advice if was else ''}set it before the trainer starts, or begin "
                "another run from this one's weights"
            )

    # --- weights that the program assigns between two steps ---------------------------------------

    def sample_weights(self) -> None:
        """Take a sample of the weights, for `assigned_since_sample`, when no operation writes them."""
        self._sample = self._sampler.sample()

    def assigned_since_sample(self) -> Assignment | None:
        """Return weights that the program has assigned since `sample_weights`; None: there are none.

        Only a few values of each parameter are compared, which detects assignments of whole
        parameters, but not every change of a part.
        """
        now = self._sampler.sample()
        changed = [index for index, (new, old) in enumerate(zip(now, self._sample, strict=True)) if new != old]
        if not changed:
            return None
        self.open()
        assignment = self._assignment(changed)
        self.close()
        return assignment

    def assigned_since_exchange(self, vectors: Collection[str]) -> Assignment | None:
        """Return weights of these vectors that differ from those of the last exchange in any bit.

        None: there are none. The replica must be open and have an anchor.
        """
        changed = self.weights.different(self._common())
        if changed and len(self._sections) > 1:
            ends = np.cumsum(self.weights.sizes)
            parts = [(start, start + size) for name, (start, size) in self._sections.items() if name in vectors]
            changed = [index for index in changed if any(start < ends[index] <= stop for start, stop in parts)]
        return self._assignment(changed) if changed else None

    def _assignment(self, changed: Sequence[int]) -> Assignment:
        """Return the assignment of these parameters; the replica is open."""
        ends = np.cumsum(self.weights.sizes)
        values = {}
        for index in changed:
            end, size = int(ends[index]), self.weights.sizes[index]
            values[end - size] = np.empty(size, np.float32)
            self.weights.read(end - size, end, values[end - size])
        return Assignment(tuple(self._trained[index].name for index in changed), values)

    def _common(self) -> np.ndarray:
        assert self.anchor is not None
        return self.anchor

    def assign(self, assignment: Assignment) -> None:
        """Set the weights to assigned ones."""
        self.open()
        for start, values in assignment.values.items():
            self.weights.write(start, values)
        self.close()

    def reaches(self, assignment: Assignment) -> bool:
        """Return whether a finite update leads from the common weights to assigned ones."""
        common = self._common()
        return all(
            np.isfinite(values - common[at : at + values.size]).all() for at, values in assignment.values.items()
        )

    @property
    def vectors(self) -> dict[str, Section]:
        """Name of each vector of weights → its values; one, unless there are several optimizers."""
        return {name: Section(self.weights, *section) for name, section in self._sections.items()}

    def gradient(self, factor: float, vector: str = WEIGHTS) -> Section:
        """Return the gradient that backward left (a sum over the batch), times a factor."""
        return Section(Scaled(self.gradients, factor), *self._sections[vector])

    def update(self) -> Difference:
        """Return the change of the weights since the last exchange: ESync's Δ."""
        return Difference(self.weights, self._common())

    def local_step(self, batch_size: int) -> float:
        """See `ModelReplica.local_step`."""
        return self._local_step(batch_size)

    def common_weights(self) -> np.ndarray | None:
        """Return the anchor if it is exactly what was written last, else None.

        It makes this a `codecs.base.KeepsCommon`.
        """
        exact = all(array.dtype == np.float32 for array in self._exchanged())
        return self.anchor if exact else None

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Take values of the common model; makes this an `exchange.ModelSink`."""
        if vector in self._sections:
            self._write_weights(self._sections[vector][0] + start, values)
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
        if self.anchor is not None:
            indices, values = step
            self.anchor[indices] += values

    def put(self, step: Sparse) -> None:
        """Replace the weights at some indices; makes this an `exchange.ModelSink`."""
        self.weights.put(*step)
        if self.anchor is not None:
            indices, values = step
            self.anchor[indices] = values


def weights_of(parameters: Sequence[Any], master: Callable[[Any], Any]) -> np.ndarray:
    """Return a copy of the weights of a network; see `Replica` for the arguments."""
    replica = Replica(parameters, float, master)
    replica.open()
    weights = values_of(replica.weights)
    replica.close()
    return weights


def track_running_statistics(parameters: Iterable[Any]) -> None:
    """Make MXNet update the running statistics of batch norms without scale and shift on CPUs.

    There MXNet updates them in the backward pass, which skips a layer with nothing to train if
    nothing before it is trained, as the first one of ResNet v2 (apache/mxnet issue 18673). So the
    unused shift of such a layer gets a gradient, which nothing reads. In a network with frozen
    parts, a layer whose statistics are not zeros and ones is left alone: call it once the workers
    have their common values.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    frozen = any(parameter._differentiable and parameter.grad_req == "null" for parameter in by_name.values())
    for name, beta in by_name.items():
        prefix = name.removesuffix("beta")
        others = [f"{prefix}{suffix}" for suffix in ("gamma", "running_mean", "running_var")]
        if prefix == name or not by_name.keys() >= set(others) or beta.list_ctx()[0].device_type != "cpu":
            continue
        gamma, mean, variance = (by_name[other] for other in others)
        if beta._differentiable or gamma._differentiable or beta.data().grad is not None:
            continue
        if frozen and (mean.data().asnumpy().any() or (variance.data().asnumpy() != 1).any()):
            continue
        beta.data().attach_grad()


def _gradient(parameter: Any) -> Any:
    """Return the gradient that backward has left; zeros for a layer that was frozen during the run."""
    if parameter.grad_req == "null":
        return stored_values(parameter) * 0
    return parameter.list_grad()[0]


def _check(parameter: Any) -> None:
    if parameter._deferred_init or parameter._data is None:
        raise UnsuitableParametersError(
            f"parameter {parameter.name} is not initialized yet: call net.initialize(), and let one batch pass through "
            "the network before the trainer starts, or give esync.Run net and input_shape"
        )
    if parameter._stype != "default":
        raise UnsuitableParametersError(
            f"the values of parameter {parameter.name} are sparse ({parameter._stype}), which esync.Trainer cannot "
            "read: leave stype out of the parameter's definition"
        )
    if len(parameter.list_ctx()) != 1:
        raise UnsuitableParametersError(
            f"parameter {parameter.name} lives on {len(parameter.list_ctx())} devices: start one process per device"
        )
    if parameter.list_data()[0] is not parameter.list_data()[0]:
        raise UnsuitableParametersError(
            f"parameter {parameter.name} computes its values whenever they are read ({type(parameter).__name__}."
            "list_data), so that there is nothing to write the common model to: give the trainer the parameters that "
            "it computes them from"
        )
