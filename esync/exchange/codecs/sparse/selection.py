"""Top-k selection: the values of a tensor that are sent."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .... import config
from . import SparseError, bounds_of, kernels

#: Values that are sampled to guess where the k-th largest lies; smaller tensors are searched
#: without a guess.
SAMPLE = 8192
#: The guess aims at this multiple of k candidates, so that it is rarely too high.
MARGIN = 1.5


def keep_count(size: int, ratio: float, dense_below: int = config.SPARSE_DENSE_BELOW) -> int:
    """Return the number of values of a tensor that are sent: max(1, ⌊ratio · size⌋).

    Of a tensor with fewer than `dense_below` values all are sent.
    """
    return size if size < dense_below else min(size, max(1, math.floor(ratio * size + 1e-9)))


def top_k(values: np.ndarray, k: int) -> np.ndarray:
    """Return the places of the k values (float32) of largest magnitude, ascending, without zeros.

    Exactly k are returned, unless fewer are nonzero. Among equal magnitudes the lowest indices win.

    Raises:
        SparseError: a value is not a number.
    """
    if k >= values.size:
        return np.flatnonzero(values)
    if room := _room(values.size, k):
        places = np.empty(room, np.int64)
        found = kernels.reaching(values, _guess(values[:: values.size // SAMPLE], values.size, k), places)
        if found >= k:
            return places[:found][_largest(values[places[:found]], k)]
    return _largest(values, k)


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the same as `top_k`, without a guess."""
    magnitudes = np.abs(values)
    least = np.partition(magnitudes, magnitudes.size - k)[magnitudes.size - k]
    if not np.isfinite(least):
        raise SparseError(
            "gradients are infinite or not numbers: the training has diverged; try a smaller learning rate"
        )
    if least == 0:
        return np.flatnonzero(magnitudes)
    chosen = magnitudes > least
    ties = np.flatnonzero(magnitudes == least)
    chosen[ties[: k - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _room(size: int, k: int) -> int:
    """Return the number of candidates to make room for; 0: a guess is not worthwhile."""
    wanted = int(MARGIN * k) + 64
    return min(size, 4 * wanted) if size > 2 * SAMPLE and wanted < size // 4 else 0


def _guess(sample: np.ndarray, size: int, k: int) -> np.float32:
    """Return a magnitude that somewhat more than k of `size` values reach."""
    wanted = int(MARGIN * k) + 64
    rank = sample.size - 1 - min(sample.size - 1, wanted * sample.size // size)
    return np.float32(np.partition(np.abs(sample), rank)[rank])


class Selection:
    """Top-k of each of several tensors that lie one behind the other in a flat vector.

    Args:
        sizes: values of each tensor.
        ratio: share of the values that is sent, above 0, at most 1.
        dense_below: tensors with fewer values are sent whole.
    """

    def __init__(self, sizes: Sequence[int], ratio: float, dense_below: int = config.SPARSE_DENSE_BELOW) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"the ratio of a sparse exchange is {ratio:g}, but should be above 0 and at most 1")
        self.bounds = bounds_of(sizes)
        self.ratio, self._dense_below = ratio, dense_below

    def of(self, values: np.ndarray, ratio: float | None = None) -> np.ndarray:
        """Return the places that are sent, ascending; a warm-up gives a `ratio` of its own."""
        kept = []
        for start, stop in pairwise(self.bounds):
            k = keep_count(int(stop - start), ratio or self.ratio, self._dense_below)
            kept.append(top_k(values[start:stop], k) + start)
        return np.concatenate(kept)

    def among(self, places: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return which entries of a sparse vector are sent, as ascending numbers of entries."""
        edges = np.searchsorted(places, self.bounds)
        kept = []
        for tensor, (first, last) in enumerate(pairwise(edges)):
            size = int(self.bounds[tensor + 1] - self.bounds[tensor])
            kept.append(top_k(values[first:last], keep_count(size, self.ratio, self._dense_below)) + first)
        return np.concatenate(kept)
