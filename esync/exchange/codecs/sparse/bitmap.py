"""Bitmaps: one bit for each position, and the loops that go through them."""

from typing import Any

import numpy as np
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

from .kernels import AHEAD, FURTHER, compiled, prefetch


def no_marks(size: int) -> np.ndarray:
    """One bit for each of so many places, none of them set (uint64)."""
    return np.zeros(words(size), np.uint64)


def words(size: int) -> int:
    """Words of the marks of so many places."""
    return -(-size // 64)


@compiled
def mark(bits: np.ndarray, indices: np.ndarray) -> None:
    """Set the bits (uint64 words) at these places."""
    for entry in range(indices.size):
        place = np.uint32(indices[entry])
        bits[place >> np.uint32(6)] |= np.uint64(1) << np.uint64(place & np.uint32(63))


@intrinsic
def ones(typing_context: Any, word: Any) -> Any:
    """The number of ones in a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@compiled
def within(bits: np.ndarray, word: int, first: int, last: int) -> int:
    """The marks in a word of places from `first` to before `last`."""
    left, start = bits[word], word << 6
    if start < first:
        left &= ~np.uint64(0) << np.uint64(first - start)
    if last - start < 64:
        left &= ~(~np.uint64(0) << np.uint64(last - start))
    return left


@compiled
def count_marks(bits: np.ndarray, bounds: np.ndarray, counts: np.ndarray) -> None:
    """Write how many places are marked in each segment; `bounds` has where they begin, and where the last one ends."""
    for segment in range(counts.size):
        first, last = bounds[segment], bounds[segment + 1]
        begin, end = first >> 6, (last + 63) >> 6
        count = np.uint64(0)
        for word in range(begin + 1, end - 1):
            count += ones(bits[word])
        if begin < end:
            count += ones(within(bits, begin, first, last))
        if begin < end - 1:
            count += ones(within(bits, end - 1, first, last))
        counts[segment] = count


@compiled
def take_marked(bits: np.ndarray, first: int, last: int, weights: np.ndarray, values: np.ndarray) -> int:
    """Write the weights at the marked places.

    Args:
        bits: the marks …
        first: … of these places …
        last: … and before this one.
        weights: those of the places from `first` on.
        values: where they are written.

    Returns:
        Their number.
    """
    # Unsigned throughout: such indices are not looked at for being negative.
    one, origin, found = np.uint64(1), np.uint64(first), np.uint64(0)
    for word in range(first >> 6, (last + 63) >> 6):
        left = within(bits, word, first, last)
        start = (np.uint64(word) << np.uint64(6)) - origin
        while left:
            place = start + np.uint64(trailing_zeros(left))
            left &= left - one
            prefetch(weights, place + np.uint64(AHEAD))
            values[found] = weights[place]
            found += one
    return int(found)


@compiled
def take_coded(
    bits: np.ndarray, first: int, last: int, weights: np.ndarray, before: int, code: np.ndarray, values: np.ndarray
) -> tuple[int, int, int]:
    """The same with the code of the places (see `encode_gaps`).

    Args:
        bits: as above.
        first: as above.
        last: as above.
        weights: as above.
        before: the last place that is coded already; −1: none.
        code: where the code is written (uint8); 1 for each mark and 1 for every 255 places are
            always enough.
        values: as above.

    Returns:
        The last place that is coded now, the bytes of the code, the number of values.
    """
    one, further, origin = np.uint64(1), np.uint64(FURTHER), np.uint64(first)
    expected, length, found = np.uint64(before + 1), np.uint64(0), np.uint64(0)
    for word in range(first >> 6, (last + 63) >> 6):
        left, start = within(bits, word, first, last), np.uint64(word) << np.uint64(6)
        while left:
            place = start + np.uint64(trailing_zeros(left))
            left &= left - one
            prefetch(weights, place - origin + np.uint64(AHEAD))
            values[found] = weights[place - origin]
            found += one
            gap = place - expected
            expected = place + one
            while gap >= further:
                code[length] = FURTHER
                length += one
                gap -= further
            code[length] = gap
            length += one
    return int(expected) - 1, int(length), int(found)


@compiled
def list_marked(bits: np.ndarray, indices: np.ndarray) -> int:
    """Write all marked places, ascending; clears the marks. Their number."""
    found = 0
    for word in range(bits.size):
        left = bits[word]
        bits[word] = np.uint64(0)
        while left != np.uint64(0):
            indices[found] = (word << 6) + np.int64(trailing_zeros(left))
            found += 1
            left &= left - np.uint64(1)
    return found
