"""Top-k selection: the values of a tensor that are sent."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .... import config
from . import SparseError, bounds_of, kernels

#: Number of values that are sampled to estimate the k-th largest one; smaller tensors are searched
#: without an estimate.
SAMPLE = 8192
#: The estimate aims at this multiple of k candidates, so that it is rarely too high.
MARGIN = 1.5


def keep_count(size: int, ratio: float, dense_below: int = config.SPARSE_DENSE_BELOW) -> int:
    """Return the number of values of a tensor to send: max(1, ⌊ratio · size⌋), or all below `dense_below`."""
    return size if size < dense_below else min(size, max(1, math.floor(ratio * size + 1e-9)))


def top_k(values: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k values (float32) of largest magnitude, ascending, without zeros.

    Exactly k are returned, unless fewer are nonzero. Among equal magnitudes the lowest indices win.

    Raises:
        SparseError: a value is not a number.
    """
    if k >= values.size:
        return np.flatnonzero(values)
    if room := _room(values.size, k):
        indices = np.empty(room, np.int64)
        count = kernels.list_large(values, _guess(values[:: values.size // SAMPLE], values.size, k), indices)
        if count >= k:
            return indices[:count][_largest(values[indices[:count]], k)]
    return _largest(values, k)


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the same as `top_k`, without an estimate."""
    magnitudes = np.abs(values)
    threshold = np.partition(magnitudes, magnitudes.size - k)[magnitudes.size - k]
    if not np.isfinite(threshold):
        raise SparseError(
            "gradients are infinite or not numbers: the training has diverged; try a smaller learning rate"
        )
    if threshold == 0:
        return np.flatnonzero(magnitudes)
    chosen = magnitudes > threshold
    ties = np.flatnonzero(magnitudes == threshold)
    chosen[ties[: k - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _room(size: int, k: int) -> int:
    """Return the number of candidates to allocate; 0: an estimate is not worthwhile."""
    candidates = int(MARGIN * k) + 64
    return min(size, 4 * candidates) if size > 2 * SAMPLE and candidates < size // 4 else 0


def _guess(sample: np.ndarray, size: int, k: int) -> np.float32:
    """Estimate a magnitude that somewhat more than k of `size` values reach."""
    candidates = int(MARGIN * k) + 64
    rank = sample.size - 1 - min(sample.size - 1, candidates * sample.size // size)
    return np.float32(np.partition(np.abs(sample), rank)[rank])


class Selection:
    """Top-k selection in each of several tensors, concatenated in a flat vector.

    Args:
        sizes: values of each tensor.
        ratio: share of the values that is sent, above 0, at most 1.
        dense_below: tensors with fewer values are sent whole.
    """

    def __init__(self, sizes: Sequence[int], ratio: float, dense_below: int = config.SPARSE_DENSE_BELOW) -> None:
        self.bounds = bounds_of(sizes)
        self.ratio, self._dense_below = ratio, dense_below

    def of(self, values: np.ndarray, ratio: float | None = None) -> np.ndarray:
        """Return the indices that are sent, ascending; a warm-up gives a `ratio` of its own."""
        return self._select(values, self.bounds, ratio or self.ratio)

    def among(self, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return which entries of a sparse vector are sent, as ascending numbers of entries."""
        return self._select(values, np.searchsorted(indices, self.bounds), self.ratio)

    def _select(self, values: np.ndarray, edges: np.ndarray, ratio: float) -> np.ndarray:
        """Select in each tensor, whose values are between two of the edges."""
        selected = []
        for size, (first, last) in zip(np.diff(self.bounds).tolist(), pairwise(edges), strict=True):
            selected.append(top_k(values[first:last], keep_count(size, ratio, self._dense_below)) + first)
        return np.concatenate(selected)
