"""The weighted sum of several vectors, computed piece by piece as it is read."""

from collections.abc import Sequence

import numpy as np

from .. import config
from . import blockwise


class WeightedSum:
    """The weighted sum Σ factor · array ÷ divisor, a `base.Source`.

    Args:
        arrays: float32, all of the same size; added in this order.
        factors: of the arrays.
        divisor: of the sum.
    """

    def __init__(self, arrays: Sequence[np.ndarray], factors: Sequence[float], divisor: float = 1.0) -> None:
        self.size = arrays[0].size
        self._arrays, self._factors = arrays, [np.float32(factor) for factor in factors]
        self._divisor = np.float32(divisor)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `base.Source`; each array is read once."""
        scaled = np.empty(min(config.RULE_BLOCK, stop - start), np.float32)
        for block in blockwise.block_slices(start, stop):
            total, spare = out[block.start - start : block.stop - start], scaled[: block.stop - block.start]
            for number, (array, weight) in enumerate(zip(self._arrays, self._factors, strict=True)):
                values = array[block]
                if number == 0:
                    np.multiply(values, weight, out=total)
                elif weight == 1:
                    total += values
                else:
                    total += np.multiply(values, weight, out=spare)
            if self._divisor != 1:
                total /= self._divisor
