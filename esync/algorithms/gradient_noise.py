"""The gradient noise scale, measured from what the workers of a round send.

The simple noise scale B = tr(Σ) ÷ |G|² (McCandlish et al., *An Empirical Model of Large-Batch
Training*, arXiv 1812.06162, section 2.2) is the number of samples whose mean gradient is as much noise
as signal. Its two parts follow from squared norms of gradients of two batch sizes (appendix A.1): here
those of each worker, and of their sum.
"""

import math
from collections.abc import Mapping

import numpy as np

from ..exchange import WEIGHTS, Payload, SizedSource, Source

#: Of how many rounds that exchange gradients one is measured, since their iterations can be short.
GRADIENT_ROUNDS = 4
#: Values in a projection's block, and most blocks of a vector that are read, which bounds the time to a
#: millisecond.
_BLOCK, _BLOCKS = 4096, 64
#: Number of projections: their squared norm has a relative standard deviation of √(2 ÷ 16) in a round.
_COLUMNS = 16
#: η of the polynomial-decay average (Shamir, Zhang, arXiv 1212.1824, section 4), which weights the
#: rounds of about the last quarter of the run.
_DECAY = 3.0

_PROJECTIONS = tuple(f"noise_projection_{number}" for number in range(_COLUMNS))
_SQUARE, _SAMPLES, _SAMPLES_SQUARED, _NOISE = (
    "noise_square",
    "noise_samples",
    "noise_samples_squared",
    "noise_independent_samples",
)


class GradientNoise:
    """Measures the noise scale over the rounds of a run.

    Worker i sends xᵢ = sᵢ·gᵢ in projections, where gᵢ is the mean gradient of its sᵢ samples since the last
    exchange. An update of H local iterations with b samples each is treated as a gradient of H·b
    samples, divided by the sum of its learning rates. Then, for a round,

        E Σ|xᵢ|² = |G|²·Σsᵢ² + tr(Σ)·Σsᵢ,    E |Σxᵢ|² = |G|²·(Σsᵢ)² + tr(Σ)·Σsᵢ,

    from which unbiased estimates of |G|² and tr(Σ) follow. They are averaged over the rounds separately,
    because their quotient is biased. With momentum m, whose buffer stays on the worker, the noise of
    successive iterations is correlated, and sᵢ in the second terms becomes sᵢ·kᵢ; see
    `noise_share`.

    Both norms are taken before compression, of the same random blocks of the weights, and that of the sum
    by random projections that are the same on all workers of a round. So the servers only add scalars.

    Attributes:
        SCALARS: what exchanges carry for it → how it is combined.
    """

    SCALARS: Mapping[str, str] = dict.fromkeys((*_PROJECTIONS, _SQUARE, _SAMPLES, _SAMPLES_SQUARED, _NOISE), "sum")

    def __init__(self) -> None:
        self._rounds, self._signal, self._noise = 0, 0.0, 0.0
        self._steps, self._rates = 0, 0.0  # local steps of the next update, and the sum of their rates

    def add_step(self, rate: float) -> None:
        """Count a local step with this learning rate, 0 where it was left out after an overflow."""
        self._steps += 1
        self._rates += rate

    def measure(
        self, payload: Payload, vectors: Mapping[str, SizedSource], round_: int, momentum: float | None
    ) -> dict[str, float]:
        """Return what this worker sends with the payload of an exchange.

        Args:
            payload: of the exchange.
            vectors: those of the replica.
            round_: number of the round, the same on all workers.
            momentum: of the local steps whose update is sent; None: a gradient is.
        """
        weights = payload.vectors.get(WEIGHTS)
        left_out = momentum is None and round_ % GRADIENT_ROUNDS != 0
        if weights is None or not payload.control.in_this_round or left_out or payload.position:
            return {}
        scale, share = payload.gradient_scale, 1.0
        if momentum is not None:
            scale, share = self._rates, noise_share(max(1, self._steps), momentum)
        self._steps, self._rates = 0, 0.0
        if not scale or not payload.samples:  # every step was left out after an overflow
            return {}
        return self.scalars(weights, vectors[WEIGHTS].size, round_, payload.samples, scale, share)

    @staticmethod
    def scalars(source: Source, size: int, round_: int, samples: int, scale: float, share: float) -> dict[str, float]:
        """Return what this worker sends.

        Args:
            source: its gradient or update.
            size: number of values.
            round_: number of the round, the same on all workers.
            samples: sᵢ.
            scale: the source is this multiple of gᵢ.
            share: kᵢ.
        """
        generator = np.random.default_rng(round_)
        blocks = np.arange(-(-size // _BLOCK))
        if blocks.size > _BLOCKS:
            blocks = generator.choice(blocks, _BLOCKS, replace=False)
        values = np.zeros((blocks.size, _BLOCK), np.float32)
        for start, block in zip((blocks * _BLOCK).tolist(), values, strict=True):
            stop = min(start + _BLOCK, size)
            source.read(start, stop, block[: stop - start])
        rows = values.reshape(-1, _COLUMNS)
        signs = (2 * generator.integers(0, 2, len(rows), np.int8) - 1).astype(np.float32)
        factor = samples / scale
        # Without BLAS, whose threads would wait for cores that the others compute on.
        projections = factor * np.einsum("i,ij->j", signs, rows).astype(np.float64)
        square = factor * factor * float(np.square(rows).sum())
        if not (math.isfinite(square) and np.isfinite(projections).all()):
            return {}
        return {
            **dict(zip(_PROJECTIONS, projections.tolist(), strict=True)),
            _SQUARE: square,
            _SAMPLES: float(samples),
            _SAMPLES_SQUARED: float(samples) ** 2,
            _NOISE: samples * share,
        }

    def follow(self, scalars: Mapping[str, float]) -> float | None:
        """Count a round.

        Args:
            scalars: of the round, summed over its workers.

        Returns:
            B in samples, averaged so far; None while it is not known, or where fewer than two workers have
            sent something.
        """
        if any(name not in scalars for name in self.SCALARS):
            return None
        samples_squared = scalars[_SAMPLES_SQUARED]
        pairs = scalars[_SAMPLES] ** 2 - samples_squared
        if pairs <= 1e-9 * samples_squared or scalars[_NOISE] <= 0:
            return None
        square = scalars[_SQUARE]
        signal = (math.fsum(scalars[name] ** 2 for name in _PROJECTIONS) - square) / pairs
        noise = (square - signal * samples_squared) / scalars[_NOISE]
        self._rounds += 1
        rate = (_DECAY + 1) / (_DECAY + self._rounds)
        self._signal += rate * (signal - self._signal)
        self._noise += rate * (noise - self._noise)
        return self._noise / self._signal if self._signal > 0 and self._noise > 0 else None


def noise_share(iterations: int, momentum: float = 0.0) -> float:
    """Return the variance of H steps with momentum, as a multiple of H independent ones.

    The velocities vₜ = m·vₜ₋₁ + gₜ of independent gradients have the autocovariance mᵏ ÷ (1 − m²), so that
    their sum over H steps has the variance (H − 2m(1 − m^H) ÷ (1 − m²)) ÷ (1 − m)², while that of their
    signal grows with H² ÷ (1 − m)².

    Args:
        iterations: H.
        momentum: m, or Adam's β₁; 0: none.
    """
    correlated = 2 * momentum * (1 - momentum**iterations) / (1 - momentum**2)
    return 1 - correlated / iterations
