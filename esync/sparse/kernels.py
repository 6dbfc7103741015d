"""The inner loops, compiled by numba on first use (its cache makes later processes start at once).

Each goes through its arrays once; the same in NumPy takes several passes over memory, which is what limits them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

#: Compiles a function; floats keep IEEE's rules, so that both ends of a wire compute the same.
compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True, nogil=True)

#: Words of marks that are listed before their places are worked on.
CHUNK = 64
#: A byte that says: 255 positions further, and the code goes on.
FURTHER = 255


@compiled
def reaching(values: np.ndarray, least: float, indices: np.ndarray) -> int:
    """Write the places of values with |value| ≥ least, ascending; their number (−1: more than there is room for)."""
    found = 0
    for place in range(values.size):
        if abs(values[place]) >= least:
            if found == indices.size:
                return -1
            indices[found] = place
            found += 1
    return found


@compiled
def reaching_difference(
    weights: np.ndarray, sent: np.ndarray, least: float, indices: np.ndarray, values: np.ndarray
) -> int:
    """The same for weights − sent, with the differences themselves."""
    found = 0
    for place in range(weights.size):
        difference = weights[place] - sent[place]
        if abs(difference) >= least:
            if found == indices.size:
                return -1
            indices[found] = place
            values[found] = difference
            found += 1
    return found


@compiled
def subtract(weights: np.ndarray, indices: np.ndarray, values: np.ndarray) -> None:
    """weights[indices] −= values."""
    for entry in range(indices.size):
        weights[indices[entry]] -= values[entry]


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
        count = np.uint64(0)
        for word in range(first >> 6, (last + 63) >> 6):
            count += ones(within(bits, word, first, last))
        counts[segment] = count


@compiled
def take_marked(
    bits: np.ndarray, first: int, last: int, weights: np.ndarray, before: int, code: np.ndarray, values: np.ndarray
) -> tuple[int, int, int]:
    """The weights at the marked places, with the code of the places (see `encode_gaps`).

    Args:
        bits: the marks …
        first: … of these places …
        last: … and before this one.
        weights: those of the places from `first` on.
        before: the last place that is coded already; −1: none.
        code: where the code is written (uint8); 1 for each mark and 1 for every 255 places are always enough.
        values: where the weights are written.

    Returns:
        The last place that is coded now, the bytes of the code, the number of values.
    """
    # Unsigned throughout: such indices are not looked at for being negative.
    one, further, origin = np.uint64(1), np.uint64(FURTHER), np.uint64(first)
    expected, length, found = np.uint64(before + 1), np.uint64(0), np.uint64(0)
    listed = np.empty(64 * CHUNK + 4, np.uint64)
    end = (last + 63) >> 6
    for begin in range(first >> 6, end, CHUNK):
        count = np.uint64(0)
        for word in range(begin, min(begin + CHUNK, end)):
            left = within(bits, word, first, last)
            start, at = np.uint64(word) << np.uint64(6), count
            count += ones(left)
            # Four at a time, whether there are as many or not: guessing wrong costs a processor more than the work.
            while True:
                for _ in range(4):
                    listed[at] = start + np.uint64(trailing_zeros(left))
                    left &= left - one
                    at += one
                if at >= count:
                    break
        for entry in range(np.int64(count)):
            place = listed[np.uint64(entry)]
            gap = place - expected
            expected = place + one
            while gap >= further:
                code[length] = FURTHER
                length += one
                gap -= further
            code[length] = gap
            length += one
            values[found] = weights[place - origin]
            found += one
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


@compiled
def difference_among(weights: np.ndarray, sent: np.ndarray, indices: np.ndarray, values: np.ndarray) -> int:
    """Keep the indices where weights and sent differ, and write by how much; how many are left."""
    found = 0
    for entry in range(indices.size):
        place = indices[entry]
        if weights[place] != sent[place]:
            indices[found] = place
            values[found] = weights[place] - sent[place]
            found += 1
    return found


@compiled
def difference_everywhere(weights: np.ndarray, sent: np.ndarray, indices: np.ndarray, values: np.ndarray) -> int:
    """Write where weights and sent differ, and by how much; their number."""
    found = 0
    for place in range(weights.size):
        if weights[place] != sent[place]:
            indices[found] = place
            values[found] = weights[place] - sent[place]
            found += 1
    return found


@compiled
def byte_sum(values: np.ndarray) -> int:
    """The sum of bytes (uint8)."""
    total = np.uint64(0)
    for place in range(values.size):
        total += values[place]
    return int(total)


@compiled
def add(sent: np.ndarray, indices: np.ndarray, values: np.ndarray) -> None:
    """sent[indices] += values."""
    for entry in range(indices.size):
        sent[indices[entry]] += values[entry]


@compiled
def encode_gaps(indices: np.ndarray, before: int, code: np.ndarray, length: int) -> int:
    """Distances between ascending indices as bytes: FURTHER for every 255, then the rest.

    Args:
        indices: what is coded.
        before: the last index before them; −1: none.
        code: where they are written (uint8) …
        length: … behind so many bytes.

    Returns:
        The bytes that are written then; −1: there is no room.
    """
    for entry in range(indices.size):
        gap = indices[entry] - before - 1
        before = indices[entry]
        while gap >= FURTHER:
            if length >= code.size:
                return -1
            code[length] = FURTHER
            length += 1
            gap -= FURTHER
        if length >= code.size:
            return -1
        code[length] = gap
        length += 1
    return length


@compiled
def decode_gaps(code: np.ndarray, indices: np.ndarray) -> bool:
    """The inverse of `encode_gaps`; False where the code does not hold exactly as many indices."""
    entry, place = 0, -1
    for position in range(code.size):
        if code[position] == FURTHER:
            place += FURTHER
            continue
        if entry == indices.size:
            return False
        place += code[position] + 1
        indices[entry] = place
        entry += 1
    return entry == indices.size and (code.size == 0 or code[-1] != FURTHER)
