"""Top-k: which values of a tensor are worth sending."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .. import config
from . import SparseError, bounds_of, kernels

#: Values looked at to guess where the k-th largest lies; smaller tensors are sorted out without a guess.
SAMPLE = 8192
#: The guess aims at that many times k candidates, so that it is rarely too high.
MARGIN = 1.5


def keep_count(size: int, ratio: float, dense_below: int = config.SPARSE_DENSE_BELOW) -> int:
    """How many values of a tensor are sent: max(1, ⌊ratio · size⌋); all of a tensor with fewer than `dense_below`."""
    return size if size < dense_below else min(size, max(1, math.floor(ratio * size + 1e-9)))


def top_k(values: np.ndarray, k: int) -> np.ndarray:
    """The places of the k values (float32) of largest magnitude, ascending; zeros are never among them.

    Exactly k, unless fewer are not zero. Among equal magnitudes the lowest indices win.

    Raises:
        SparseError: a value is not a number.
    """
    if k >= values.size:
        return np.flatnonzero(values)
    candidates = _candidates(values, k)
    magnitudes = np.abs(values[candidates])
    least = np.partition(magnitudes, magnitudes.size - k)[magnitudes.size - k]
    if not np.isfinite(least):
        raise SparseError(
            "gradients are infinite or not numbers: the training has diverged; try a smaller learning rate"
        )
    if least == 0:
        return candidates[magnitudes > 0]
    chosen = magnitudes > least
    ties = np.flatnonzero(magnitudes == least)
    chosen[ties[: k - np.count_nonzero(chosen)]] = True
    return candidates[chosen]


def _candidates(values: np.ndarray, k: int) -> np.ndarray:
    """Places, ascending, that hold the k largest magnitudes and as few others as a sample can tell."""
    wanted = int(MARGIN * k) + 64
    if values.size > 2 * SAMPLE and wanted < values.size // 4:
        sample = np.abs(values[:: values.size // SAMPLE])
        rank = sample.size - 1 - min(sample.size - 1, wanted * sample.size // values.size)
        places = np.empty(min(values.size, 4 * wanted), np.int64)
        found = kernels.reaching(values, np.partition(sample, rank)[rank], places)
        if found >= k:
            return places[:found]
    return np.arange(values.size)


class Selection:
    """Top-k of each of several tensors that lie one behind the other in a flat vector.

    Args:
        sizes: values of each tensor.
        ratio: share of the values that is sent, above 0, at most 1.
        dense_below: tensors with fewer values are sent as they are.
    """

    def __init__(self, sizes: Sequence[int], ratio: float, dense_below: int = config.SPARSE_DENSE_BELOW) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"the ratio of a sparse exchange is {ratio:g}, but should be above 0 and at most 1")
        self.bounds = bounds_of(sizes)
        self.ratio, self._dense_below = ratio, dense_below

    def of(self, values: np.ndarray, ratio: float | None = None) -> np.ndarray:
        """The places of what is sent, ascending; `ratio` in place of the usual one, for a warm-up."""
        kept = []
        for start, stop in pairwise(self.bounds):
            k = keep_count(int(stop - start), ratio or self.ratio, self._dense_below)
            kept.append(top_k(values[start:stop], k) + start)
        return np.concatenate(kept)

    def among(self, places: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The same for a sparse vector: which of its entries (ascending numbers) are sent."""
        edges = np.searchsorted(places, self.bounds)
        kept = []
        for tensor, (first, last) in enumerate(pairwise(edges)):
            size = int(self.bounds[tensor + 1] - self.bounds[tensor])
            kept.append(top_k(values[first:last], keep_count(size, self.ratio, self._dense_below)) + first)
        return np.concatenate(kept)
