"""--compression 2bit: every value becomes +s, 0 or −s, with one s for each tensor of the bucket.

    s of each segment (float32) | codes of each segment, four in a byte, 1: +s, 2: −s, 0: 0;
    segments begin with a byte

MXNet's 2-bit compression uses a fixed s, which is also its threshold. Model updates are small, and
their size varies between layers and over time, so s is measured here: it is the mean magnitude of
the values above three quarters of the mean magnitude of all (similar to Li et al., "Ternary Weight
Networks", 2016). Each value is rounded to the nearest of the three.
"""

import math
from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from . import kernels
from .base import NOT_FINITE, CompressionError, Quantizer

#: Share of the mean magnitude above which values count as large: their mean magnitude is s.
THRESHOLD = 0.75
#: Significant binary digits of s. So rounding errors are exact in float32, if no value is larger
#: than MAX_RATIO · s.
DIGITS = 8
MAX_RATIO = 2.0**15
#: Smaller s are not sent, so that received values are never subnormal.
MIN_SCALE = 2.0**-100


class TwoBitQuantizer(Quantizer):
    """Packs a bucket; see `Quantizer`.

    Args:
        segments: sizes of the tensors, or parts of tensors, in the bucket.
    """

    def __init__(self, segments: Sequence[int]) -> None:
        self._segments = list(segments)
        self._bytes = sum(-(-size // 4) for size in self._segments)
        self.elements = len(self._segments) + -(-self._bytes // 4)

    @override
    def pack(self, values: np.ndarray, packed: np.ndarray) -> None:
        codes = packed[len(self._segments) :].view(np.uint8)
        codes[self._bytes :] = 0
        start, byte = 0, 0
        scales = [_scale(part) for part in self._parts(values)]
        for number, (size, scale) in enumerate(zip(self._segments, scales, strict=True)):
            stop, until = start + size, byte + -(-size // 4)
            packed[number] = scale
            if scale:
                kernels.to_two_bits(values[start:stop], scale, codes[byte:until])
            else:
                codes[byte:until] = 0
            start, byte = stop, until

    @override
    def add(self, packed: np.ndarray, target: np.ndarray) -> None:
        count = len(self._segments)
        scales, codes = packed[:count], packed[count:].view(np.uint8)
        start, byte = 0, 0
        for size, scale in zip(self._segments, scales, strict=True):
            stop, until = start + size, byte + -(-size // 4)
            if scale:
                kernels.add_two_bits(codes[byte:until], scale, target[start:stop])
            start, byte = stop, until

    def _parts(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, np.cumsum(self._segments)[:-1]) if self._segments else []


def _scale(values: np.ndarray) -> np.float32:
    """Return the s of a segment; 0: its values are not sent.

    Raises:
        CompressionError: a value is not finite.
    """
    total = float(kernels.magnitude(values))
    if not math.isfinite(total):
        raise CompressionError(NOT_FINITE)
    if not total:
        return np.float32(0)
    scale = float(kernels.mean_above(values, np.float32(THRESHOLD * total / values.size)))
    largest = float(np.uint32(kernels.largest_bits(values)).view(np.float32))
    fraction, exponent = math.frexp(max(scale, largest / MAX_RATIO))
    scale = math.ldexp(math.ceil(fraction * 2**DIGITS), exponent - DIGITS)
    return np.float32(scale if scale >= MIN_SCALE else 0)
