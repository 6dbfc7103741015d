"""A small perceptron in NumPy, as a model that algorithms exchange.

Its gradient takes a millisecond.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from esync.exchange import WEIGHTS
from esync.simulate.timing import TimedReplica

LAYERS = (784, 64, 10)


class Perceptron:
    """A network, its flat weights and the gradient of the last batch."""

    def __init__(self, seed: int) -> None:
        self.sizes = [size for layer in self._shapes() for size in (layer[0] * layer[1], layer[0])]
        rng = np.random.default_rng(seed)
        self.values = np.zeros(sum(self.sizes), np.float32)
        self.slope = np.zeros_like(self.values)
        self._layers = self._views(self.values)
        self._slopes = self._views(self.slope)
        for weights, _ in self._layers:
            bound = math.sqrt(6 / sum(weights.shape))
            weights[:] = rng.uniform(-bound, bound, weights.shape)

    def learn(self, images: np.ndarray, labels: np.ndarray) -> None:
        """Compute the gradient of the cross entropy, summed over a batch."""
        outputs = self._forward(images)
        odds = np.exp(outputs[-1] - outputs[-1].max(axis=1, keepdims=True))
        error = odds / odds.sum(axis=1, keepdims=True)
        error[np.arange(len(labels)), labels.astype(np.int64)] -= 1
        for place in reversed(range(len(self._layers))):
            weights, bias = self._slopes[place]
            np.matmul(error.T, outputs[place], out=weights)
            error.sum(axis=0, out=bias)
            if place:
                error = (error @ self._layers[place][0]) * (outputs[place] > 0)

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        """Return the share of images that are classified correctly."""
        return float((self._forward(images)[-1].argmax(axis=1) == labels).mean())

    def _forward(self, images: np.ndarray) -> list[np.ndarray]:
        outputs = [images.reshape(len(images), -1)]
        for place, (weights, bias) in enumerate(self._layers):
            summed = outputs[-1] @ weights.T + bias
            outputs.append(summed if place == len(self._layers) - 1 else np.maximum(summed, 0))
        return outputs

    @staticmethod
    def _shapes() -> Iterator[tuple[int, int]]:
        return zip(LAYERS[1:], LAYERS[:-1], strict=True)

    def _views(self, flat: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        edges = np.cumsum([0, *self.sizes])
        parts = [flat[first:last] for first, last in pairwise(edges)]
        return [(parts[2 * i].reshape(shape), parts[2 * i + 1]) for i, shape in enumerate(self._shapes())]


class Vector:
    """A flat vector times a factor, as an `exchange.Source`."""

    def __init__(self, values: np.ndarray, sizes: list[int], factor: float = 1.0) -> None:
        self.values, self.sizes, self.size, self._factor = values, sizes, values.size, np.float32(factor)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `exchange.Source`."""
        np.multiply(self.values[start:stop], self._factor, out=out)


class Copy(TimedReplica):
    """A worker's copy of the model, for algorithms that send gradients.

    See `algorithms.context.ModelReplica`.
    """

    weights: Any
    statistics: Any

    def __init__(self, net: Perceptron) -> None:
        super().__init__()
        self.net = net
        self.weights, self.statistics = Vector(net.values, net.sizes), Vector(np.zeros(0, np.float32), [])
        self.size = net.values.size

    def gradient(self, factor: float, vector: str = WEIGHTS) -> Any:
        """Return the gradient of the last batch."""
        return Vector(self.net.slope, self.net.sizes, factor)

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """See `exchange.ModelSink.write`."""
        if vector == WEIGHTS:
            self.net.values[start : start + values.size] = values

    def add(self, step: Any) -> None:
        """See `exchange.ModelSink.add`."""
        self.net.values[step[0]] += step[1]

    def put(self, step: Any) -> None:
        """See `exchange.ModelSink.put`."""
        self.net.values[step[0]] = step[1]
