"""The inner loops of the codecs, compiled by numba on first use; each goes through its arrays once.

Floats keep IEEE's rules where both ends of a wire must compute the same; only `magnitude` and
`mean_above`, whose results are sent along, may add up in any order.
"""

from typing import Any

import numpy as np

from ....runtime.machine_code import machine_code
from .float16_conversion import MAGNITUDE, half, value

#: Compiles a function.
compiled = machine_code()
#: Compiles a function that may add up sums in the fastest order.
any_order = machine_code(fastmath={"reassoc"})

#: Bits of the smallest float32 that is not finite, without its sign.
INFINITE = 0x7F800000
#: Bits of the smallest float16 that is not finite.
INFINITE_HALF = 0x7C00


@compiled
def largest_bits(values: np.ndarray) -> Any:
    """Return the bits of the largest magnitude; `INFINITE` or more where a value is not finite."""
    most = np.uint32(0)
    for index in range(values.size):
        most = max(most, np.float32(values[index]).view(np.uint32) & MAGNITUDE)
    return most


@compiled
def largest_half(halves: np.ndarray) -> Any:
    """Return the largest magnitude of float16 bits (uint16).

    It is `INFINITE_HALF` or more where a value is not finite.
    """
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
    """Write the bits of values · scale to halves (uint16), to nearest, ties to even.

    Besides, values −= halves · unit. `unit` is 1 ÷ scale, both powers of two; values · scale must
    be within float16's range.
    """
    for index in range(values.size):
        bits = half(values[index] * scale)
        halves[index] = np.uint16(bits)
        values[index] -= value(bits) * unit


@compiled
def step_by_halves(
    values: np.ndarray, others: np.ndarray, scale: np.float32, unit: np.float32, halves: np.ndarray
) -> None:
    """Write the bits of (values − others) · scale to halves (uint16).

    Besides, others += halves · unit, and the values stay; see `to_halves`.
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
    """Write halves · unit to `target`, whatever it held before; see `add_halves`."""
    for index in range(halves.size):
        target[index] = np.float32(0) + value(np.uint32(halves[index])) * unit


@any_order
def magnitude(values: np.ndarray) -> Any:
    """Return the sum of |value|; infinite or not a number where a value is."""
    total = np.float64(0)
    for index in range(values.size):
        total += np.float64(abs(values[index]))
    return total


@any_order
def mean_above(values: np.ndarray, least: np.float32) -> Any:
    """Return the mean of |value| where it is `least` or more; 0 where none is."""
    total, count = np.float64(0), 0
    for index in range(values.size):
        size = abs(values[index])
        chosen = size >= least
        total += np.float64(size) if chosen else np.float64(0)
        count += 1 if chosen else 0
    return total / count if count else total


@compiled
def to_two_bits(values: np.ndarray, scale: np.float32, codes: np.ndarray) -> None:
    """Write codes (uint8, four values in each): 1 for +scale, 2 for −scale, 0 for 0.

    Besides, the values coded are subtracted from `values`. Each is the nearest of the three; at
    exactly half of the scale it is 0.
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
    """Add the values that the codes stand for to `target`."""
    decoded = np.array([0, scale, -scale, 0], np.float32)
    for byte in range(codes.size):
        code = codes[byte]
        for part in range(min(4, target.size - 4 * byte)):
            target[4 * byte + part] += decoded[(code >> (2 * part)) & 3]
