"""How many samples do n workers with H local iterations need, and does the model of samples say so?

    python benchmarks/sample_model.py [--json FILE]

A perceptron of 51,000 weights learns Fashion-MNIST on n workers that exchange the mean of their models
after H local iterations of plain SGD, at four rates, with two seeds, all of them equally fast, so that
samples stand for time. Reported are the samples to three test accuracies beside those of one worker, and
how far `esync.samples` is from them, with one noise scale for each accuracy that fits best, and
the measured ones. Takes about 20 minutes on one core. What is done is not done again.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.figures import read_figures, write_figures

from esync import samples as model
from esync.data import load

RESULT = program.RESULTS / "sample_model.json"
BATCH, HIDDEN = 32, 64
RATES = (0.1, 0.2, 0.4, 0.8)
SEEDS = (0, 1)
GRID = [(1, 1), *((n, h) for n in (2, 4, 8) for h in (1, 8, 32, 128))]
TARGETS = ("0.83", "0.85", "0.865")
#: The best rate of one worker, in the grid.
BEST = 0.2


class Perceptron:
    """One layer of hidden units on Fashion-MNIST, as a stack of replicas."""

    def __init__(self) -> None:
        data = load("fashion-mnist")
        self.images, self.labels = self._flat(data.train_images), data.train_labels.astype(int)
        self._test, self._test_labels = self._flat(data.test_images), data.test_labels.astype(int)

    @staticmethod
    def _flat(images: np.ndarray) -> np.ndarray:
        return images.reshape(-1, 784).astype(np.float32) / 255 - np.float32(0.286)

    @staticmethod
    def initial(generator: np.random.Generator) -> list[np.ndarray]:
        """Return weights and biases of both layers."""
        first = generator.normal(0, math.sqrt(2 / 784), (784, HIDDEN))
        second = generator.normal(0, math.sqrt(2 / HIDDEN), (HIDDEN, 10))
        return [part.astype(np.float32) for part in (first, np.zeros((1, HIDDEN)), second, np.zeros((1, 10)))]

    def gradients(self, weights: Sequence[np.ndarray], chosen: np.ndarray) -> list[np.ndarray]:
        """Return each replica's mean gradient of its batch; `chosen` has the shape (replicas, BATCH)."""
        images, labels = self.images[chosen], self.labels[chosen]
        hidden = images @ weights[0] + weights[1]
        active = np.maximum(hidden, 0)
        scores = active @ weights[2] + weights[3]
        scores -= scores.max(-1, keepdims=True)
        error = np.exp(scores)
        error /= error.sum(-1, keepdims=True)
        error[np.arange(len(chosen))[:, None], np.arange(BATCH)[None], labels] -= 1
        error /= BATCH
        back = error @ weights[2].swapaxes(1, 2)
        back[hidden <= 0] = 0
        layers = (images.swapaxes(1, 2) @ back, back.sum(1, keepdims=True))
        return [*layers, active.swapaxes(1, 2) @ error, error.sum(1, keepdims=True)]

    def accuracy(self, weights: Sequence[np.ndarray]) -> float:
        """Return the test accuracy."""
        scores = np.maximum(self._test @ weights[0] + weights[1], 0) @ weights[2] + weights[3]
        return float((scores.argmax(1) == self._test_labels).mean())


def train(net: Perceptron, workers: int, local: int, rate: float, seed: int) -> dict[str, list[float]]:
    """Return, for each target, the samples to it and the noise scale of the updates by then."""
    generator = np.random.default_rng(seed)
    common, order = net.initial(generator), generator.permutation(len(net.images))
    parts = [generator.permutation(order[rank::workers]) for rank in range(workers)]
    largest, at, used, reached = 300_000 * max(1, workers // 2), 0, 0, dict[str, list[float]]()
    evaluated = iter(np.unique(np.geomspace(200, largest, 160).astype(int)))
    due, norms = next(evaluated), np.zeros(2)
    while used < largest and len(reached) < len(TARGETS):
        weights = [np.repeat(part[None], workers, 0) for part in common]
        for _ in range(local):
            if at + BATCH > min(map(len, parts)):
                parts, at = [generator.permutation(part) for part in parts], 0
            slopes = net.gradients(weights, np.stack([part[at : at + BATCH] for part in parts]))
            at += BATCH
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= np.float32(rate) * slope
        used += workers * local * BATCH
        updates = [weight - part for weight, part in zip(weights, common, strict=True)]
        norms += [
            sum(np.square(update).sum() / workers for update in updates),
            sum(np.square(update.mean(0)).sum() for update in updates),
        ]
        common = [weight.mean(0) for weight in weights]
        if used < due:
            continue
        while due <= used < largest:
            due = next(evaluated)
        score = net.accuracy(common)
        for target in TARGETS:
            if target not in reached and score >= float(target):
                signal = (workers * norms[1] - norms[0]) / max(1, workers - 1)
                noise = (norms[0] - norms[1]) * workers / max(1, workers - 1)
                reached[target] = [used, noise / signal * local * BATCH if workers > 1 else 0.0]
    return {target: [float(value) for value in values] for target, values in reached.items()}


def needed(figures: Mapping[str, Any], workers: int, local: int, target: str, rates: Sequence[float]) -> float:
    """Return the geometric mean over the seeds of the samples, at the best of these rates; infinity: missed."""
    times = [[figures[key(workers, local, rate, seed)].get(target, [math.inf])[0] for seed in SEEDS] for rate in rates]
    return min(math.exp(np.mean(np.log(seeds))) for seeds in times)


def key(workers: int, local: int, rate: float, seed: int) -> str:
    """Return the key of a run's figures."""
    return f"n {workers} H {local} rate {rate:g} seed {seed}"


def report(figures: Mapping[str, Any]) -> None:
    """Print how far the model is from what was measured."""
    relaxation, cells = model.RELAXATION, [cell for cell in GRID if cell[0] > 1]
    scales: dict[str, float] = {}
    for tau in (0.0, relaxation):
        model.RELAXATION, left = tau, []
        for target in TARGETS:
            alone = needed(figures, 1, 1, target, RATES)
            ratios = np.array([needed(figures, *cell, target, RATES) / alone for cell in cells])
            errors = {
                scale: np.log(
                    [ratio * model.worth(scale / BATCH, [h] * n) for ratio, (n, h) in zip(ratios, cells, strict=True)]
                )
                for scale in np.geomspace(100, 30_000, 200)
            }
            scales[target] = min(errors, key=lambda scale: float(np.sum(np.square(errors[scale]))))
            left += list(errors[scales[target]])
        shown = ", ".join(f"{target} {scale:,.0f}" for target, scale in scales.items())
        print(f"best rates, τ = {tau:g}: deviation {np.sqrt(np.mean(np.square(left))):.3f}; B of {shown}")
    for rate in (BEST / 2, BEST):
        left = []
        for target in TARGETS:
            alone = needed(figures, 1, 1, target, [rate])
            for n, h in cells:
                ratio = needed(figures, n, h, target, [rate]) / alone
                left.append(-math.log(ratio * model.worth(scales[target] / BATCH, [h] * n, 1.0)))
        left = [value for value in left if math.isfinite(value)]
        print(f"rate {rate:g}: deviation {np.sqrt(np.mean(np.square(left))):.3f}, mean {np.mean(left):+.3f}")
    for target in TARGETS:
        measured = [
            figures[key(n, h, BEST, 0)][target][1] * (h + relaxation) / h
            for n, h in cells
            if target in figures[key(n, h, BEST, 0)]
        ]
        print(f"measured B to {target}, rate {BEST:g}: {min(measured):,.0f} to {max(measured):,.0f}")


def main() -> None:
    """Carry out the runs and print the report."""
    parser = program.parser(__doc__, RESULT)
    options = parser.parse_args()
    figures: dict[str, Any] = read_figures(Path(options.json))
    net = Perceptron()
    for workers, local in GRID:
        for rate in RATES:
            for seed in SEEDS:
                if (name := key(workers, local, rate, seed)) not in figures:
                    figures[name] = train(net, workers, local, rate, seed)
            write_figures(options.json, figures)
    report(figures)


if __name__ == "__main__":
    program.run(main)
