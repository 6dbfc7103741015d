"""Several NDArrays as one flat vector in host memory, and what is computed while one is read."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..runtime.mxnet_arrays import BLOCK, host_view, is_plain, like
from ..runtime.mxnet_import import mx


def stored_values(parameter: Any) -> Any:
    """Return the NDArray that holds a parameter's values.

    `data()` may return computed values instead, for instance of a weight-drop parameter.
    gluon.Trainer also updates the stored values.
    """
    return parameter.list_data()[0]


class FlatArrays:
    """Several NDArrays as one flat vector in host memory, read and written as float32.

    Args:
        arrays: returns the NDArrays, always in the same order and shapes; called by every `open`.

    Attributes:
        sizes: number of values of each array.
        size: number of values of all arrays.
    """

    def __init__(self, arrays: Callable[[], Sequence[Any]]) -> None:
        self._arrays = arrays
        self.sizes = [math.prod(array.shape) for array in arrays()]  # sparse gradients have no size
        self._ends = list(accumulate(self.sizes))
        self.size = self._ends[-1] if self._ends else 0
        self._opened: list[Any] = []
        self._views: list[np.ndarray] = []
        self._written = False

    def open(self) -> None:
        """Fetch the current values; MXNet's engine must have no pending operations on them."""
        self._opened = list(self._arrays())
        self._views = [(host_view(array) if is_plain(array) else array.asnumpy()).reshape(-1) for array in self._opened]

    def settle(self) -> None:
        """Wait until no operation of MXNet's engine reads or writes the arrays any more."""
        for array in self._arrays():
            mx.base.check_call(mx.base._LIB.MXNDArrayWaitToWrite(array.handle))

    def close(self) -> bool:
        """Copy written values back to arrays that are not in host memory.

        Returns:
            Whether anything was written.
        """
        written = self._written
        if written:
            for array, view in zip(self._opened, self._views, strict=True):
                if not is_plain(array):
                    values = mx.nd.array(view.reshape(array.shape), ctx=array.context, dtype=array.dtype)
                    array[:] = like(values, array)
        self._opened, self._views, self._written = [], [], False
        return written

    def copies(self) -> list[np.ndarray]:
        """Return copies of the arrays' values in their own types; `put_back` takes them."""
        return [view.copy() for view in self._views]

    def put_back(self, copies: Sequence[np.ndarray]) -> None:
        """Write what `copies` has returned."""
        for view, values in zip(self._views, copies, strict=True):
            np.copyto(view, values)
        self._written = True

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the values start to stop as views into the arrays.

        Each comes with the index of its first value in the vector: (index, values).
        """
        index = bisect_right(self._ends, start)
        while start < stop:
            view, end = self._views[index], self._ends[index]
            first = end - view.size
            until = min(stop, end)
            yield start, view[start - first : until - first]
            start, index = until, index + 1

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Copy the values start to stop; makes this an `exchange.Source`."""
        for at, values in self.pieces(start, stop):
            out[at - start : at - start + values.size] = values

    def write(self, start: int, values: np.ndarray) -> None:
        """Replace the values from `start` on."""
        self._written = True
        for at, view in self.pieces(start, start + values.size):
            np.copyto(view, values[at - start : at - start + view.size])

    def times(self, factor: float, start: int, stop: int) -> np.ndarray:
        """Return a copy of the values start to stop, multiplied by a factor."""
        copy = np.empty(stop - start, np.float32)
        Scaled(self, factor).read(start, stop, copy)
        return copy

    def change(self, values: np.ndarray, factor: float, start: int) -> None:
        """Write back the changes to an array that `times` has returned.

        Unchanged values keep every bit, which a multiplication and a division would not
        preserve.
        """
        multiplier, stop = np.float32(factor), start + values.size
        scratch, changed = np.empty(BLOCK, np.float32), np.empty(BLOCK, bool)
        with np.errstate(over="ignore"):  # infinite in float16, as a gradient that has overflowed
            for first in range(start, stop, BLOCK):
                for at, view in self.pieces(first, min(first + BLOCK, stop)):
                    new, different = values[at - start : at - start + view.size], changed[: view.size]
                    now = np.multiply(view, multiplier, out=scratch[: view.size], dtype=np.float32)
                    if np.not_equal(now, new, out=different).any():
                        self._written = True
                        np.divide(new, multiplier, out=view, where=different, casting="same_kind")

    def different(self, values: np.ndarray) -> list[int]:
        """Return the indices of the arrays whose values differ from these in any bit (float32)."""
        changed_arrays = []
        for index, (view, end) in enumerate(zip(self._views, self._ends, strict=True)):
            before = values[end - view.size : end].view(np.int32)
            for first in range(0, view.size, BLOCK):
                now = view[first : first + BLOCK].astype(np.float32, copy=False).view(np.int32)
                if not np.array_equal(now, before[first : first + BLOCK]):
                    changed_arrays.append(index)
                    break
        return changed_arrays

    def add(self, indices: np.ndarray, values: np.ndarray) -> None:
        """Add a sparse vector: ascending indices, and float32 values."""
        for view, local, part in self._entries_by_array(indices, values):
            view[local] += part

    def put(self, indices: np.ndarray, values: np.ndarray) -> None:
        """Replace the values at some indices: ascending indices, and float32 values."""
        for view, local, part in self._entries_by_array(indices, values):
            view[local] = part

    def _entries_by_array(
        self, indices: np.ndarray, values: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield for each array its view, the local indices of entries, and their values."""
        self._written = True
        edges = np.searchsorted(indices, [0, *self._ends])
        for view, end, first, last in zip(self._views, self._ends, edges, edges[1:], strict=False):
            yield view, indices[first:last] - (end - view.size), values[first:last]


class Section:
    """A part of a flat vector.

    Args:
        source: has the vector.
        start: index of the first value.
        size: number of values.
    """

    def __init__(self, source: Any, start: int, size: int) -> None:
        self._source, self._start, self.size = source, start, size

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `exchange.Source`."""
        self._source.read(self._start + start, self._start + stop, out)


class Scaled:
    """A source times a factor."""

    def __init__(self, arrays: FlatArrays, factor: float) -> None:
        self._arrays, self._factor = arrays, np.float32(factor)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `exchange.Source`."""
        for at, values in self._arrays.pieces(start, stop):
            np.multiply(values, self._factor, out=out[at - start : at - start + values.size], dtype=np.float32)


class Difference:
    """A source minus a flat vector."""

    def __init__(self, arrays: FlatArrays, base: np.ndarray) -> None:
        self._arrays, self._base, self.size = arrays, base, base.size

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `exchange.Source`."""
        for at, values in self._arrays.pieces(start, stop):
            end = at + values.size
            np.subtract(values, self._base[at:end], out=out[at - start : end - start])
