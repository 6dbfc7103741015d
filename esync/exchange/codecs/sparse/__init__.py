"""Sparse exchanges: selection and coding of values, and tracking of the workers' weights.

Source: Yan et al., "Dual-Way Gradient Sparsification for Asynchronous Distributed Deep Learning",
ICPP 2020 (DGS), with its errata; Aji and Heafield, EMNLP 2017 (gradient dropping); Lin et al., ICLR
2018 (DGC). Uses neither MXNet nor the network. A sparse vector is a pair of arrays: indices (int64,
ascending) and values (float32).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from ....runtime.errors import ExpectedError

#: Indices, ascending (int64), and values (float32).
Sparse = tuple[np.ndarray, np.ndarray]


class SparseError(ExpectedError):
    """A vector cannot be made sparse; the message says why."""


@dataclass(frozen=True)
class Differences:
    """The kind of answers that contain the changes since the worker's last answer.

    Attributes:
        secondary_ratio: share of the values of each segment in an answer; 0: all that have changed.
        dense_below: segments with fewer values are sent completely.
        values: type of the values sent, "float32" or "float16", in both directions.
    """

    secondary_ratio: float = 0.0
    dense_below: int = 0
    values: str = "float32"

    @property
    def replace(self) -> bool:
        """Whether answers hold the new values of all changed weights, instead of differences."""
        return not self.secondary_ratio and self.values == "float32"


def bounds_of(sizes: Sequence[int]) -> np.ndarray:
    """Return the start of each of several tensors in their flat vector, and the end (int64)."""
    return np.fromiter(accumulate(sizes, initial=0), np.int64, len(sizes) + 1)


def split(entries: Sparse, bounds: np.ndarray) -> Iterator[Sparse]:
    """Yield the entries in each part (see `bounds_of`), including empty ones, with indices in the part."""
    indices, values = entries
    edges = np.searchsorted(indices, bounds)
    for start, (first, last) in zip(bounds, pairwise(edges), strict=False):
        yield indices[first:last] - start, values[first:last]


def join(parts: list[Sparse]) -> Sparse:
    """Concatenate sparse vectors."""
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def check_finite(gradient: np.ndarray) -> None:
    """Raise a SparseError if a gradient is not finite, because it would stay in the residual forever."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(gradient.sum()) and not np.isfinite(gradient).all():
            raise SparseError(
                "the gradient is infinite or not a number: the training has diverged; try a smaller learning rate"
            )
