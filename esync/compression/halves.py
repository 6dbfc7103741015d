"""--compression fp16: float16 values with one scale for each bucket, so that nothing is too large or too small for it.

    unit (float32, a power of two) | bits of float16 values, and one that is not used where their number is odd

A value is float16 · unit. The unit is chosen so that the largest value of the bucket lies near the end of float16's
range: updates of 10⁻⁷ keep their eleven binary digits, and nothing overflows. Rounding stays with the sender.
"""

import numpy as np

from . import NOT_FINITE, CompressionError, kernels

#: The largest value becomes 2¹⁴ or more, but less than 2¹⁵; float16 ends just below 2¹⁶.
TOP = 14
#: The largest scale, as an exponent of two: what arrives is never so small that a processor may take it for zero.
MOST = 100


class Halves:
    """Packs a bucket of `size` values; see `BucketCodec`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.elements = 1 + -(-size // 2)

    def pack(self, values: np.ndarray, packed: np.ndarray) -> None:
        """See `BucketCodec.pack`."""
        largest = int(kernels.largest_bits(values))
        if largest >= kernels.INFINITE:
            raise CompressionError(NOT_FINITE)
        exponent = min(TOP - ((largest >> 23) - 127), MOST)
        packed[0] = unit = np.float32(2.0**-exponent)
        kernels.to_halves(values, np.float32(2.0**exponent), unit, self._halves(packed))
        packed[1:].view(np.uint16)[self._size :] = 0

    def add(self, packed: np.ndarray, target: np.ndarray) -> None:
        """See `BucketCodec.add`."""
        halves, unit = self._halves(packed), packed[0]
        if packed.size != self.elements or not 0 < unit < np.inf or np.frexp(unit)[0] != 0.5:
            raise CompressionError("a bucket of float16 values has no valid unit in front of them")
        if kernels.largest_half(halves) >= kernels.INFINITE_HALF:
            raise CompressionError("a bucket of float16 values has some that are infinite or not numbers")
        kernels.add_halves(halves, unit, target)

    def _halves(self, packed: np.ndarray) -> np.ndarray:
        return packed[1:].view(np.uint16)[: self._size]
