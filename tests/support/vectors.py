"""A small model for exchanges in tests: sizes, values from a seed, and a place for results."""

from collections.abc import Mapping

import numpy as np

from esync.exchange import STATISTICS, WEIGHTS, Flat
from esync.exchange.codecs.sparse import Sparse

TENSORS = [17, 6]
SIZES = {WEIGHTS: sum(TENSORS), STATISTICS: 4}


class Held:
    """What a worker holds; see `exchange.ModelSink`."""

    def __init__(self, sizes: Mapping[str, int] = SIZES) -> None:
        self.vectors = {name: np.zeros(size, np.float32) for name, size in sizes.items()}

    @property
    def weights(self) -> np.ndarray:
        return self.vectors[WEIGHTS]

    def add_vector(self, name: str, size: int) -> None:
        self.vectors[name] = np.zeros(size, np.float32)

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        self.vectors[vector][start : start + values.size] = values

    def add(self, step: Sparse) -> None:
        self.weights[step[0]] += step[1]

    def put(self, step: Sparse) -> None:
        self.weights[step[0]] = step[1]


def values(*seed: int) -> dict[str, np.ndarray]:
    """Values of every vector."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}


def gradient(rank: int, sequence: int, workers: int) -> np.ndarray:
    """Return what a slot's worker sends in an exchange, whoever holds the slot.

    Its places are those that no other worker changes.
    """
    full = values(rank, sequence)[WEIGHTS]
    return np.where(np.arange(full.size) % workers == rank, full, np.float32(0))


def sources(vectors: Mapping[str, np.ndarray]) -> dict[str, Flat]:
    return {name: Flat(vector) for name, vector in vectors.items()}
