"""Model of samples: how many of them a training needs with several devices and local iterations.

docs/internals/samples.md derives it. Noise scales are in batches of one device; they may be arrays, one
element for each part of a run. Iterations are those of each device from one common model to the one that
has them, in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import config

#: Iterations of each device.
Iterations = Sequence[float] | np.ndarray
#: τ: iterations in which the gradient changes in steep directions. Fitted to twelve combinations of n and H.
RELAXATION = 12.0
#: Least worth of a sample at a learning rate that is far too high.
_MIN_WORTH = 0.01


def persistent(noise_scale: np.ndarray, iterations: Iterations) -> np.ndarray:
    """Return the noise scale of the gradient's persistent part, given that of updates.

    Args:
        noise_scale: measured from updates of these iterations.
        iterations: H of each device, two or more of them above 0.
    """
    total, squares = np.sum(iterations), np.sum(np.square(iterations))
    return noise_scale * (1 + RELAXATION * (_common(iterations) - total) / (total**2 - squares))


def worth(noise_scale: np.ndarray | float, iterations: Iterations, factor: float | None = None) -> np.ndarray:
    """Return what a sample is worth, compared with one device alone.

    With the learning rate that suits the method it is

        w = (B + τ + Σ Hᵢ² ÷ ΣHᵢ) ÷ (B + ΣHᵢ + τ·Σᵢⱼ min(Hᵢ, Hⱼ) ÷ ΣHᵢ),

    of n devices alike (B + H + τ) ÷ (B + n·(H + τ)). With H = 1 and without τ this is the trade-off
    between examples and steps of McCandlish et al., *An Empirical Model of Large-Batch Training* (arXiv
    1812.06162), equation 2.11. With c times the learning rate that suits one device it is
    c·(2 − c ÷ (n·w)) ÷ n, where n = ΣHᵢ ÷ max Hᵢ, from their equation 2.6.

    Args:
        noise_scale: B, of the persistent part.
        iterations: H of each device, one or more of them above 0.
        factor: c; None: the one that suits, n·w.
    """
    total = np.sum(iterations)
    alone = noise_scale + RELAXATION + np.sum(np.square(iterations)) / total
    suited = np.asarray(alone / (noise_scale + total + RELAXATION * _common(iterations) / total))
    if factor is None:
        return suited
    devices = total / max(iterations)
    return np.maximum(_MIN_WORTH, factor * (2 - factor / (devices * suited)) / devices)


def _common(iterations: Iterations) -> float:
    """Return the sum of min(Hᵢ, Hⱼ) over all pairs, those of a device with itself included."""
    descending = np.sort(iterations)[::-1]
    return float(descending @ (2 * np.arange(descending.size) + 1))


@dataclass(frozen=True)
class Training:
    """A training up to a target, as it was logged.

    Attributes:
        samples: of all devices in each part of the run.
        noise_scales: B in each part, in batches.
        worth: what a sample was worth in each part.
        target: value of the metric that it has reached, as text; "": none was evaluated.
        measured: whether the noise scale is measured, not the default.
        same_rate: whether other methods have its learning rate, else the one that suits them.
        optimizer: name of its optimizer; "": unknown.
    """

    samples: np.ndarray
    noise_scales: np.ndarray
    worth: np.ndarray
    target: str = ""
    measured: bool = False
    same_rate: bool = True
    optimizer: str = ""

    @property
    def alone(self) -> float:
        """Samples that one device alone needs to the target."""
        return float(np.sum(self.samples * self.worth))

    def needed(self, iterations: Iterations, factor: float | None) -> float:
        """Return the samples that another method needs to the target; see `worth`."""
        return float(np.sum(self.samples * self.worth / worth(self.noise_scales, iterations, factor)))


#: What is assumed without logs: one sample on one device, and the best learning rate of each method.
UNKNOWN = Training(np.ones(1), np.full(1, config.NOISE_SCALE), np.ones(1), same_rate=False)
