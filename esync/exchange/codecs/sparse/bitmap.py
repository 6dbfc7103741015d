"""Bitmaps, with one bit for each position, and the compiled loops on them."""

from typing import Any

import numpy as np
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

from .kernels import AHEAD, compiled, prefetch


def no_marks(size: int) -> np.ndarray:
    """Return an empty bitmap (uint64) of that many positions."""
    return np.zeros(words(size), np.uint64)


def words(size: int) -> int:
    """Return the number of words in the bitmap of that many positions."""
    return -(-size // 64)


@compiled
def mark(bits: np.ndarray, indices: np.ndarray) -> None:
    """Set the bits (uint64 words) at these positions."""
    for entry in range(indices.size):
        position = np.uint32(indices[entry])
        bits[position >> np.uint32(6)] |= np.uint64(1) << np.uint64(position & np.uint32(63))


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Return the number of ones in a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@compiled
def within(bits: np.ndarray, word: int, first: int, last: int) -> int:
    """Return a word of the bitmap without the bits outside of positions `first` to `last`."""
    remaining, start = bits[word], word << 6
    if start < first:
        remaining &= ~np.uint64(0) << np.uint64(first - start)
    if last - start < 64:
        remaining &= ~(~np.uint64(0) << np.uint64(last - start))
    return remaining


@compiled
def count_marks(bits: np.ndarray, bounds: np.ndarray, counts: np.ndarray) -> None:
    """Write the number of marked positions in each segment to `counts`.

    `bounds` has the start of each segment, and the end of the last one.
    """
    for segment in range(counts.size):
        first, last = bounds[segment], bounds[segment + 1]
        begin, end = first >> 6, (last + 63) >> 6
        count = np.uint64(0)
        for word in range(begin + 1, end - 1):
            count += popcount(bits[word])
        if begin < end:
            count += popcount(within(bits, begin, first, last))
        if begin < end - 1:
            count += popcount(within(bits, end - 1, first, last))
        counts[segment] = count


@compiled
def gather_marked(bits: np.ndarray, first: int, last: int, weights: np.ndarray, values: np.ndarray) -> int:
    """Write the weights at the marked positions.

    Args:
        bits: the marks.
        first: the first position that is considered.
        last: the position before which it ends.
        weights: those of the positions from `first` on.
        values: output.

    Returns:
        The number of values.
    """
    # Unsigned throughout, so that numba does not check whether indices are negative.
    one, origin, count = np.uint64(1), np.uint64(first), np.uint64(0)
    for word in range(first >> 6, (last + 63) >> 6):
        remaining = within(bits, word, first, last)
        start = (np.uint64(word) << np.uint64(6)) - origin
        while remaining:
            position = start + np.uint64(trailing_zeros(remaining))
            remaining &= remaining - one
            prefetch(weights, position + np.uint64(AHEAD))
            values[count] = weights[position]
            count += one
    return int(count)


@compiled
def list_marked(bits: np.ndarray, indices: np.ndarray) -> int:
    """Write all marked positions, ascending, and clear the marks; return their number."""
    count = 0
    for word in range(bits.size):
        remaining = bits[word]
        bits[word] = np.uint64(0)
        while remaining != np.uint64(0):
            indices[count] = (word << 6) + np.int64(trailing_zeros(remaining))
            count += 1
            remaining &= remaining - np.uint64(1)
    return count
