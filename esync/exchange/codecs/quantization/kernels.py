"""The inner loops of the quantizers, compiled by numba on first use; each makes one pass over arrays.

They use IEEE floats, so workers and servers compute the same; only `magnitude` and `mean_above`,
whose results are sent, may add in any order.
"""

from typing import Any

import numpy as np

from ....runtime.machine_code import machine_code
from .float16_conversion import MAGNITUDE, half, value

#: Compiles a function.
compiled = machine_code()
#: Compiles a function that may reorder sums.
any_order = machine_code(fastmath={"reassoc"})

#: Bits of the smallest float32 that is not finite, without its sign.
INFINITE = 0x7F800000
#: Bits of the smallest float16 that is not finite.
INFINITE_HALF = 0x7C00


@compiled
def largest_bits(values: np.ndarray) -> Any:
    """Return the bits of the largest magnitude; `INFINITE` or more if a value is not finite."""
    most = np.uint32(0)
    for index in range(values.size):
        most = max(most, np.float32(values[index]).view(np.uint32) & MAGNITUDE)
    return most


@compiled
def largest_half(halves: np.ndarray) -> Any:
    """Return the largest magnitude of float16 bits (uint16); `INFINITE_HALF` or more if not finite."""
    most = np.uint16(0)
    for index in range(halves.size):
        most = max(most, halves[index] & np.uint16(0x7FFF))
    return most


@compiled
def gather(values: np.ndarray, more: np.ndarray) -> Any:
    """Add `more` to the values, and return the `largest_bits` of the sums."""
    most = np.uint32(0)
    for index in range(values.size):
        total = values[index] + more[index]
        values[index] = total
        most = max(most, np.float32(total).view(np.uint32) & MAGNITUDE)
    return most


@compiled
def largest_difference(values: np.ndarray, others: np.ndarray) -> Any:
    """Return the `largest_bits` of values − others."""
    most = np.uint32(0)
    for index in range(values.size):
        most = max(most, np.float32(values[index] - others[index]).view(np.uint32) & MAGNITUDE)
    return most


@compiled
def to_halves(values: np.ndarray, scale: np.float32, unit: np.float32, halves: np.ndarray) -> None:
    """Write the float16 bits of values · scale to halves (uint16), then values −= halves · unit.

    Values are rounded to nearest, ties to even. `unit` is 1 ÷ scale, both are powers of two; values ·
    scale must be within float16's range.
    """
    for index in range(values.size):
        bits = half(values[index] * scale)
        halves[index] = np.uint16(bits)
        values[index] -= value(bits) * unit


@compiled
def step_by_halves(
    values: np.ndarray, others: np.ndarray, scale: np.float32, unit: np.float32, halves: np.ndarray
) -> None:
    """Write the float16 bits of (values − others) · scale to halves, then others += halves · unit.

    See `to_halves`; the values do not change.
    """
    for index in range(values.size):
        bits = half((values[index] - others[index]) * scale)
        halves[index] = np.uint16(bits)
        others[index] += value(bits) * unit


@compiled
def add_halves(halves: np.ndarray, unit: np.float32, target: np.ndarray) -> None:
    """Add halves (uint16, the bits of finite float16) · unit to `target`."""
    for index in range(halves.size):
        target[index] += value(np.uint32(halves[index])) * unit


@compiled
def put_halves(halves: np.ndarray, unit: np.float32, target: np.ndarray) -> None:
    """Write halves · unit to `target`; see `add_halves`."""
    for index in range(halves.size):
        target[index] = np.float32(0) + value(np.uint32(halves[index])) * unit


@any_order
def magnitude(values: np.ndarray) -> Any:
    """Return the sum of |value|; infinite or NaN if a value is."""
    total = np.float64(0)
    for index in range(values.size):
        total += np.float64(abs(values[index]))
    return total


@any_order
def mean_above(values: np.ndarray, least: np.float32) -> Any:
    """Return the mean of all |value| of at least `least`; 0 if there are none."""
    total, count = np.float64(0), 0
    for index in range(values.size):
        size = abs(values[index])
        chosen = size >= least
        total += np.float64(size) if chosen else np.float64(0)
        count += 1 if chosen else 0
    return total / count if count else total


@compiled
def to_two_bits(values: np.ndarray, scale: np.float32, codes: np.ndarray) -> None:
    """Round values to +scale, −scale or 0, write their codes, and subtract the rounded values.

    Codes are 1, 2 and 0, four in each uint8. A value of exactly half the scale is rounded to 0.
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
    """Add the values of the codes to `target`."""
    decoded = np.array([0, scale, -scale, 0], np.float32)
    for byte in range(codes.size):
        code = codes[byte]
        for part in range(min(4, target.size - 4 * byte)):
            target[4 * byte + part] += decoded[(code >> (2 * part)) & 3]
