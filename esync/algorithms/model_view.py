"""The view of a model that an algorithm's hooks get: flat NumPy arrays, copied on demand."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: A function that takes a view and returns None, which is checked, such as
#: `Algorithm.before_local_step`.
Hook = Callable[["ModelView"], object]

#: Values of a block of `ModelView.blocks`: a few arrays of that size stay in the processor's cache.
BLOCK = 65_536


class _Source:
    """The values of a view, in the replica (`replica.Replica`).

    Attributes:
        block: the one that a loop over `ModelView.blocks` has come to.
    """

    def __init__(self, replica: Any, gradient_factor: float | None, fixed_weights: bool) -> None:
        self._replica, self._factor, self.fixed_weights = replica, gradient_factor, fixed_weights
        self._opened: set[str] = set()
        self.block: Block | None = None

    def arrays(self, name: str) -> tuple[Any, float]:
        """Return the arrays behind a property, and the factor to multiply them by."""
        if name == "gradient" and self._factor is None:
            raise RuntimeError(
                "there is no model.gradient after an exchange, when the gradients of the last batch have been used: "
                "take it in before_local_step"
            )
        replica = self._replica
        arrays = {"weights": replica.weights, "gradient": replica.gradients, "statistics": replica.statistics}[name]
        if name not in self._opened:
            self._opened.add(name)
            arrays.open()
        return arrays, (self._factor or 0.0) if name == "gradient" else 1.0

    def anchor(self) -> np.ndarray:
        """Return the replica's anchor."""
        if self._replica.anchor is None:
            raise RuntimeError(
                "there is no model.anchor: this algorithm exchanges nothing, so that its weights have no common state"
            )
        return self._replica.anchor

    def further(self, name: str, contribution: bool) -> np.ndarray:
        """Return the replica's values of a further vector.

        They are its common values, or what this worker contributes to them.
        """
        vectors = self._replica.contributions if contribution else self._replica.further
        if name not in vectors:
            raise RuntimeError(
                f"there is no vector {name!r}: an algorithm declares further vectors by `vectors`; "
                f"this one has {', '.join(sorted(vectors)) or 'none'}"
            )
        values: np.ndarray = vectors[name].values
        return values


class Block:
    """A part of this worker's model, for one turn of a loop over `ModelView.blocks`.

    Each property is a flat float32 array, as long as the block. See `ModelView`.
    """

    def __init__(self, source: _Source, start: int, stop: int) -> None:
        self._source, self._start, self._stop = source, start, stop
        self._copies: dict[str, np.ndarray] = {}
        self._anchor: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray:
        """The trained values, or float32 copies of float16 weights where the optimizer keeps them.

        Where an algorithm sends gradients, changed weights last until the next exchange brings the
        servers'. Where it sends them sparsely, the array is read-only: the servers rely on what
        each worker has.
        """
        copy = self._copy("weights")
        copy.flags.writeable = not self._source.fixed_weights
        return copy

    @weights.setter
    def weights(self, values: np.ndarray) -> None:
        if self._source.fixed_weights:
            raise RuntimeError("model.weights cannot be changed: the servers rely on what this worker has")
        self._assign("weights", values)

    @property
    def gradient(self) -> np.ndarray:
        """The mean gradient of this worker's batch, as long as `weights`.

        Gluon leaves the sum over the batch; automatic mixed precision multiplies that by its loss
        scale, and `gradient_scale` the step's share of it. None of that is visible here: the values
        are those that weight decay is relative to. A `rescale_grad` of the optimizer is part of
        them.

        With automatic mixed precision, gradients that have overflowed may come to a hook of an
        algorithm with a local optimizer. They should stay NaN or infinite: the step is then left
        out.

        Raises:
            RuntimeError: an exchange has ended, and the gradients of the last batch have been used.
        """
        return self._copy("gradient")

    @gradient.setter
    def gradient(self, values: np.ndarray) -> None:
        self._assign("gradient", values)

    @property
    def anchor(self) -> np.ndarray:
        """The common weights of the last exchange or the start; as long as `weights`, read-only.

        This worker's next update is counted from them: what a hook adds to `weights` is part of
        that update.

        Raises:
            RuntimeError: the algorithm keeps none.
        """
        if self._anchor is None:
            self._anchor = self._read_anchor()
            self._anchor.flags.writeable = False
        return self._anchor

    def common(self, name: str) -> np.ndarray:
        """Return the common values of a further vector, as of the last exchange; read-only.

        Before the first exchange they are those of the start. See `Algorithm.vectors`.

        Raises:
            RuntimeError: the algorithm has not declared that vector.
        """
        values = self.of(self._source.further(name, contribution=False))
        values.flags.writeable = False
        return values

    def contribution(self, name: str) -> np.ndarray:
        """Return what this worker contributes to a further vector in exchanges; change it in place.

        It stays until it is changed again, and begins with zeros. Write it in `before_exchange`, as
        `block.contribution("control")[:] = …`.

        Raises:
            RuntimeError: the algorithm has not declared that vector.
        """
        return self.of(self._source.further(name, contribution=True))

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return this block's part of a flat array that is as long as all weights; no copy."""
        return values[self._start : self._stop]

    def write_back(self) -> None:
        """Write changed values back to the model."""
        for name, copy in self._copies.items():
            arrays, factor = self._source.arrays(name)
            arrays.change(copy, factor, self._start)
        self._copies.clear()

    def _read_anchor(self) -> np.ndarray:
        return self._source.anchor()[self._start : self._stop]

    def _copy(self, name: str) -> np.ndarray:
        if name not in self._copies:
            arrays, factor = self._arrays(name)
            self._copies[name] = arrays.times(factor, self._start, min(self._stop, arrays.size))
        return self._copies[name]

    def _assign(self, name: str, values: np.ndarray) -> None:
        if values is self._copies.get(name):
            return  # += and the like
        arrays, _ = self._arrays(name)
        size = min(self._stop, arrays.size) - self._start
        array = np.array(values, np.float32)  # a copy: the hook may go on with its own
        if array.shape != (size,):
            raise ValueError(f"model.{name} is a flat array of {size} values, but was given one of shape {array.shape}")
        self._copies[name] = array

    def _arrays(self, name: str) -> tuple[Any, float]:
        if self._source.block not in (None, self):
            raise RuntimeError("within a loop over model.blocks() only the arrays of its block can be used")
        return self._source.arrays(name)


class ModelView(Block):
    """This worker's model as NumPy arrays, valid during one call of a hook.

    Each property is a flat float32 array in the order of the trainer's parameters (by name, where
    it was given those of `net.collect_params()`), and a copy that is made when it is first asked
    for: what is not touched costs nothing. So all of NumPy is there,

        model.gradient += mu * (model.weights - model.anchor)

    and an array may be kept after the hook has returned. What has been changed in place, or
    assigned, is written back when the hook returns; a value that was left alone stays as it was to
    the last bit. When the hook raises an exception, nothing is written, but for the blocks of a
    loop that it has gone through.

    Attributes:
        batch_size: samples of this worker's batch; None where there is no batch, after an exchange.
    """

    def __init__(
        self, replica: Any, batch_size: int | None, gradient_factor: float, fixed_weights: bool = False
    ) -> None:
        self.batch_size, self._size = batch_size, int(replica.weights.size)
        source = _Source(replica, None if batch_size is None else gradient_factor, fixed_weights)
        super().__init__(source, 0, max(self._size, replica.statistics.size))

    @property
    def statistics(self) -> np.ndarray:
        """The values that are not trained: batch norm's running statistics, and frozen layers."""
        return self._copy("statistics")

    @statistics.setter
    def statistics(self, values: np.ndarray) -> None:
        self._assign("statistics", values)

    def blocks(self) -> Iterator[Block]:
        """Yield weights, gradient and anchor block by block, which is faster for large models.

        It takes less than half as long, for operations on each value by itself:

            for block in model.blocks():
                block.gradient += mu * (block.weights - block.anchor)

        What has been changed in a block is written back when the loop goes on, and its arrays are
        not to be kept. What has been changed in whole arrays before the loop is written back, too;
        they have to be asked for anew after it.
        """
        self.write_back()
        for start in range(0, self._size, BLOCK):
            self._source.block = Block(self._source, start, min(start + BLOCK, self._size))
            yield self._source.block
            self._source.block.write_back()
        self._source.block = None

    def write_back(self) -> None:
        """See `Block.write_back`; write back the block of a loop that has been left early, too."""
        if self._source.block is not None:
            self._source.block.write_back()
        super().write_back()

    def _read_anchor(self) -> np.ndarray:
        return super()._read_anchor().copy()  # the replica's own array changes with the next exchange
