"""--compression fp16: float16 values with one scale for each bucket.

    unit (float32, a power of two) | bits of float16 values, and one unused value if their number
    is odd

A value is float16 · unit. The unit is chosen so that the largest value of the bucket is near the end
of float16's range. So updates of 10⁻⁷ keep eleven binary digits, and no value overflows. The sender
keeps the rounding errors.
"""

from typing import Any

import numpy as np
from typing_extensions import override

from . import kernels
from .base import NOT_FINITE, CompressionError, Quantizer

#: The largest value is scaled to 2¹⁴ or more, but less than 2¹⁵; float16 ends just below 2¹⁶.
TOP = 14
#: The largest scale, as an exponent of two, so that received values are never subnormal.
MAX_EXPONENT = 100


class FP16Quantizer(Quantizer):
    """Packs a bucket of `size` values; see `Quantizer`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.elements = 1 + -(-size // 2)

    @override
    def pack(self, values: np.ndarray, packed: np.ndarray) -> None:
        self._pack(kernels.largest_bits(values), values, packed)

    @override
    def pack_with(self, residual: np.ndarray, values: np.ndarray, packed: np.ndarray) -> None:
        self._pack(kernels.gather(residual, values), residual, packed)

    @override
    def step(self, exact: np.ndarray, common: np.ndarray, packed: np.ndarray) -> None:
        scale, unit = self._scale(kernels.largest_difference(exact, common), packed)
        kernels.step_by_halves(exact, common, scale, unit, self._halves(packed))

    @override
    def add(self, packed: np.ndarray, target: np.ndarray) -> None:
        kernels.add_halves(self._halves(packed), packed[0], target)

    @override
    def put(self, packed: np.ndarray, target: np.ndarray) -> None:
        kernels.put_halves(self._halves(packed), packed[0], target)

    # --- helpers ----------------------------------------------------------------------------------

    def _pack(self, largest: Any, values: np.ndarray, packed: np.ndarray) -> None:
        scale, unit = self._scale(largest, packed)
        kernels.to_halves(values, scale, unit, self._halves(packed))

    def _scale(self, largest: Any, packed: np.ndarray) -> tuple[np.float32, np.float32]:
        """Return scale and unit for values whose largest has these bits.

        The unit is written to `packed`, and the unused value, if any, is set to zero.
        """
        if int(largest) >= kernels.INFINITE:
            raise CompressionError(NOT_FINITE)
        exponent = min(TOP - ((int(largest) >> 23) - 127), MAX_EXPONENT)
        packed[0] = unit = np.float32(2.0**-exponent)
        packed[1:].view(np.uint16)[self._size :] = 0
        return np.float32(2.0**exponent), unit

    def _halves(self, packed: np.ndarray) -> np.ndarray:
        return packed[1:].view(np.uint16)[: self._size]
