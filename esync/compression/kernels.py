"""The inner loops of the codecs, compiled by numba on first use; each goes through its arrays once.

NumPy converts between float32 and float16 at a tenth of this speed. Floats keep IEEE's rules where both ends of a wire
must compute the same; only `magnitude` and `mean_above`, whose results are sent along, may add up in any order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

#: Compiles a function.
compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True, nogil=True)
#: The same; sums are added up in the order that is quickest.
any_order: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True, nogil=True, fastmath={"reassoc"})

#: Bits of the smallest float32 that is no finite number, without its sign.
INFINITE = 0x7F800000
#: The same of float16.
INFINITE_HALF = 0x7C00

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_HALF_SIGN, _HALF_MAGNITUDE = np.uint32(0x8000), np.uint32(0x7FFF)
_16, _13, _1 = np.uint32(16), np.uint32(13), np.uint32(1)
#: float32 is float16 times 2¹³ with another bias, as bits; and what the cut-off bits are rounded by.
_BIAS, _ROUND = np.uint32(0x38000000), np.uint32(0xFFF)
#: Below it float16 has fewer digits, the smaller the fewer; adding ½ in float32 rounds to just these.
_SUBNORMAL, _HALF_SUBNORMAL = np.uint32(0x38800000), np.uint32(0x400)
_MAGIC, _MAGIC_BITS = np.float32(0.5), np.uint32(0x3F000000)


@compiled
def largest_bits(values: np.ndarray) -> Any:
    """The bits of the largest magnitude; `INFINITE` or more where a value is not finite."""
    most = np.uint32(0)
    for place in range(values.size):
        most = max(most, np.float32(values[place]).view(np.uint32) & _MAGNITUDE)
    return most


@compiled
def largest_half(halves: np.ndarray) -> Any:
    """The same for the bits of float16 (uint16); `INFINITE_HALF`."""
    most = np.uint16(0)
    for place in range(halves.size):
        most = max(most, halves[place] & np.uint16(0x7FFF))
    return most


@compiled
def to_halves(values: np.ndarray, scale: np.float32, unit: np.float32, halves: np.ndarray) -> None:
    """Write to halves (uint16) the bits of values · scale, to nearest, ties to even; values −= halves · unit.

    `unit` is 1 ÷ scale, both powers of two; values · scale must be within float16's range.
    """
    for place in range(values.size):
        value = values[place]
        bits = np.float32(value * scale).view(np.uint32)
        sign, size = (bits >> _16) & _HALF_SIGN, bits & _MAGNITUDE
        normal = (size + _ROUND + ((size >> _13) & _1) - _BIAS) >> _13
        small = np.float32(np.uint32(size).view(np.float32) + _MAGIC).view(np.uint32) - _MAGIC_BITS
        half = normal if size >= _SUBNORMAL else small
        halves[place] = np.uint16(half | sign)
        as_normal = np.uint32((half << _13) + _BIAS).view(np.float32)
        as_small = np.uint32(half + _MAGIC_BITS).view(np.float32) - _MAGIC
        said = as_normal if half >= _HALF_SUBNORMAL else as_small
        values[place] = value - np.uint32(np.float32(said).view(np.uint32) | (sign << _16)).view(np.float32) * unit


@compiled
def add_halves(halves: np.ndarray, unit: np.float32, target: np.ndarray) -> None:
    """Add halves (uint16, the bits of finite float16) · unit to `target`."""
    for place in range(halves.size):
        bits = np.uint32(halves[place])
        half, sign = bits & _HALF_MAGNITUDE, (bits & _HALF_SIGN) << _16
        as_normal = np.uint32((half << _13) + _BIAS).view(np.float32)
        as_small = np.uint32(half + _MAGIC_BITS).view(np.float32) - _MAGIC
        said = as_normal if half >= _HALF_SUBNORMAL else as_small
        target[place] += np.uint32(np.float32(said).view(np.uint32) | sign).view(np.float32) * unit


@any_order
def magnitude(values: np.ndarray) -> Any:
    """The sum of |value|; infinite or not a number where a value is."""
    total = np.float64(0)
    for place in range(values.size):
        total += np.float64(abs(values[place]))
    return total


@any_order
def mean_above(values: np.ndarray, least: np.float32) -> Any:
    """The mean of |value| where it is `least` or more; 0 where none is."""
    total, count = np.float64(0), 0
    for place in range(values.size):
        size = abs(values[place])
        chosen = size >= least
        total += np.float64(size) if chosen else np.float64(0)
        count += 1 if chosen else 0
    return total / count if count else total


@compiled
def to_two_bits(values: np.ndarray, scale: np.float32, codes: np.ndarray) -> None:
    """Write to codes (uint8, four values in each) 1 for +scale, 2 for −scale, 0 for 0; values −= what they say.

    It is the nearest of the three; at exactly half of the scale it is 0.
    """
    edge = np.float32(0.5) * scale
    for byte in range(codes.size):
        code = 0
        for part in range(min(4, values.size - 4 * byte)):
            value = values[4 * byte + part]
            if value > edge:
                values[4 * byte + part] = value - scale
                code |= 1 << (2 * part)
            elif value < -edge:
                values[4 * byte + part] = value + scale
                code |= 2 << (2 * part)
        codes[byte] = code


@compiled
def add_two_bits(codes: np.ndarray, scale: np.float32, target: np.ndarray) -> None:
    """Add what the codes say to `target`."""
    said = np.array([0, scale, -scale, 0], np.float32)
    for byte in range(codes.size):
        code = codes[byte]
        for part in range(min(4, target.size - 4 * byte)):
            target[4 * byte + part] += said[(code >> (2 * part)) & 3]
