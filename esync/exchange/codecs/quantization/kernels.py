"""The inner loops of the quantizers, compiled by numba on first use; each makes one pass over arrays.

They use IEEE floats, so workers and servers compute the same; only `magnitude` and `mean_above`,
whose results are sent, may add in any order.
"""

from typing import Any

import numpy as np
from numba import njit

from ....runtime.machine_code import machine_code
from .float16_conversion import MAGNITUDE, half, value

#: Compiles a function.
compiled = machine_code()
#: Compiles a function that may reorder sums.
any_order = machine_code(fastmath={"reassoc"})

#: Bits of the smallest float32 that is not finite, without its sign.
INFINITE = 0x7F800000


@compiled
def largest_bits(values: np.ndarray) -> Any:
    """Return the bits of the largest magnitude; `INFINITE` or more if a value is not finite."""
    largest = np.uint32(0)
    for index in range(values.size):
        largest = max(largest, np.float32(values[index]).view(np.uint32) & MAGNITUDE)
    return largest


@compiled
def gather(values: np.ndarray, more: np.ndarray) -> Any:
    """Add `more` to the values, and return the `largest_bits` of the sums."""
    largest = np.uint32(0)
    for index in range(values.size):
        total = values[index] + more[index]
        values[index] = total
        largest = max(largest, np.float32(total).view(np.uint32) & MAGNITUDE)
    return largest


@compiled
def largest_difference(values: np.ndarray, others: np.ndarray) -> Any:
    """Return the `largest_bits` of values − others."""
    largest = np.uint32(0)
    for index in range(values.size):
        largest = max(largest, np.float32(values[index] - others[index]).view(np.uint32) & MAGNITUDE)
    return largest


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
def mean_above(values: np.ndarray, threshold: np.float32) -> Any:
    """Return the mean of all |value| of at least `threshold`; 0 if there are none."""
    total, count = np.float64(0), 0
    for index in range(values.size):
        size = abs(values[index])
        chosen = size >= threshold
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


#: 4 bits: a unit is rounded up to eight significant binary digits, so that its multiples are exact; a
#: smaller unit than 2⁻¹⁰⁰ is not sent, so that received values are never subnormal.
_LOWER_BITS, _UPPER_BITS, _MIN_UNIT = np.uint32(0xFFFF), np.uint32(0xFFFF0000), np.float32(2.0**-100)
_HALF, _SEVENTH, _ONE = np.float32(0.5), np.float32(1 / 7), np.float32(1)


@njit(inline="always")
def _unit(largest: np.uint32) -> Any:
    """Return the unit of a block whose largest magnitude has these bits; 0: nothing is sent."""
    seventh = np.float32(np.uint32(largest).view(np.float32) * _SEVENTH)
    unit = np.uint32((seventh.view(np.uint32) + _LOWER_BITS) & _UPPER_BITS).view(np.float32)
    return unit if unit >= _MIN_UNIT else np.float32(0)


@njit(inline="always")
def _multiple(value: np.float32, unit: np.float32, inverse: np.float32) -> Any:
    """Return the multiple of the unit nearest to a value, from −7 to 7.

    A value is never rounded away from zero by more than half a unit, so that what it differs by is
    exact in float32 (Sterbenz's lemma).
    """
    size = abs(value)
    multiple = np.int32(size * inverse + _HALF)
    multiple -= np.int32(size < (np.float32(multiple) - _HALF) * unit)
    multiple = min(multiple, np.int32(7))
    return multiple if value >= 0 else -multiple


@njit(inline="always")
def _pack_block(values: np.ndarray, unit: np.float32, codes: np.ndarray) -> None:
    """Write the codes of a block, and subtract the packed values."""
    half, inverse = codes.size, _ONE / unit
    for index in range(values.size - half):
        low, high = values[index], values[half + index]
        first, second = _multiple(low, unit, inverse), _multiple(high, unit, inverse)
        codes[index] = np.uint8((first + 8) | ((second + 8) << 4))
        values[index] = low - np.float32(first) * unit
        values[half + index] = high - np.float32(second) * unit
    if values.size < 2 * half:
        last = values[half - 1]
        multiple = _multiple(last, unit, inverse)
        codes[half - 1] = np.uint8((multiple + 8) | (8 << 4))
        values[half - 1] = last - np.float32(multiple) * unit


@njit(inline="always")
def _encode(values: np.ndarray, largest: np.uint32, codes: np.ndarray) -> Any:
    """Write the codes of a block whose largest magnitude has these bits; return its unit."""
    unit = _unit(largest)
    if unit:
        _pack_block(values, unit, codes)
    else:
        codes[:] = 0x88
    return unit


@compiled
def to_four_bits(values: np.ndarray, block: int, units: np.ndarray, codes: np.ndarray) -> Any:
    """Write units and codes of values, and subtract the packed values; return whether all are finite."""
    for number in range(units.size):
        part = values[number * block : (number + 1) * block]
        largest = largest_bits(part)
        if largest >= INFINITE:
            return False
        units[number] = _encode(part, largest, codes[number * block // 2 : (number + 1) * block // 2])
    return True


@compiled
def gather_four_bits(values: np.ndarray, more: np.ndarray, block: int, units: np.ndarray, codes: np.ndarray) -> Any:
    """Add `more` to the values first; see `to_four_bits`."""
    for number in range(units.size):
        part = values[number * block : (number + 1) * block]
        largest = gather(part, more[number * block : (number + 1) * block])
        if largest >= INFINITE:
            return False
        units[number] = _encode(part, largest, codes[number * block // 2 : (number + 1) * block // 2])
    return True


@compiled
def step_by_four_bits(values: np.ndarray, others: np.ndarray, block: int, units: np.ndarray, codes: np.ndarray) -> Any:
    """Write units and codes of values − others, and add the packed values to the others.

    Returns:
        Whether all differences are finite.
    """
    scratch = np.empty(block, np.float32)
    for number in range(units.size):
        exact, common = values[number * block : (number + 1) * block], others[number * block : (number + 1) * block]
        difference = scratch[: exact.size]
        for index in range(exact.size):
            difference[index] = exact[index] - common[index]
        largest = largest_bits(difference)
        if largest >= INFINITE:
            return False
        written = codes[number * block // 2 : (number + 1) * block // 2]
        units[number] = unit = _encode(difference, largest, written)
        if unit:
            _add_block(written, unit, common)
    return True


@njit(inline="always")
def _add_block(codes: np.ndarray, unit: np.float32, target: np.ndarray) -> None:
    half = codes.size
    for index in range(half):
        target[index] += np.float32((np.int32(codes[index]) & 15) - 8) * unit
    for index in range(target.size - half):
        target[half + index] += np.float32((np.int32(codes[index]) >> 4) - 8) * unit


@compiled
def add_four_bits(units: np.ndarray, codes: np.ndarray, block: int, target: np.ndarray) -> None:
    """Add the packed values to `target`."""
    for number in range(units.size):
        if units[number]:
            part = codes[number * block // 2 : (number + 1) * block // 2]
            _add_block(part, units[number], target[number * block : (number + 1) * block])


@compiled
def put_four_bits(units: np.ndarray, codes: np.ndarray, block: int, target: np.ndarray) -> None:
    """Write the packed values to `target`."""
    for number in range(units.size):
        written = target[number * block : (number + 1) * block]
        written[:] = np.float32(0)
        if units[number]:
            _add_block(codes[number * block // 2 : (number + 1) * block // 2], units[number], written)
