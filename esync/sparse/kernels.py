"""The inner loops, compiled by numba on first use (its cache makes later processes start at once).

Each goes through its arrays once; the same in NumPy takes several passes over memory, which is what limits them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

#: Compiles a function; floats keep IEEE's rules, so that both ends of a wire compute the same.
compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True, nogil=True)

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
def subtract(weights: np.ndarray, indices: np.ndarray, values: np.ndarray) -> None:
    """weights[indices] −= values."""
    for entry in range(indices.size):
        weights[indices[entry]] -= values[entry]


@compiled
def mark(bits: np.ndarray, indices: np.ndarray) -> None:
    """Set the bits (uint64 words) at these places."""
    for entry in range(indices.size):
        place = indices[entry]
        bits[place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@compiled
def difference(weights: np.ndarray, sent: np.ndarray, bits: np.ndarray, indices: np.ndarray, values: np.ndarray) -> int:
    """Write where weights and sent differ among the marked places, and by how much; clears the marks. Their number."""
    found = 0
    for word in range(bits.size):
        left = bits[word]
        if left == np.uint64(0):
            continue
        bits[word] = np.uint64(0)
        place = word << 6
        while left != np.uint64(0):
            if left & np.uint64(0xFF) == np.uint64(0):
                left >>= np.uint64(8)
                place += 8
                continue
            if left & np.uint64(1) and weights[place] != sent[place]:
                indices[found] = place
                values[found] = weights[place] - sent[place]
                found += 1
            left >>= np.uint64(1)
            place += 1
    return found


@compiled
def difference_everywhere(weights: np.ndarray, sent: np.ndarray, indices: np.ndarray, values: np.ndarray) -> int:
    """The same among all places."""
    found = 0
    for place in range(weights.size):
        if weights[place] != sent[place]:
            indices[found] = place
            values[found] = weights[place] - sent[place]
            found += 1
    return found


@compiled
def add(sent: np.ndarray, indices: np.ndarray, values: np.ndarray) -> None:
    """sent[indices] += values."""
    for entry in range(indices.size):
        sent[indices[entry]] += values[entry]


@compiled
def encode_gaps(indices: np.ndarray, code: np.ndarray) -> int:
    """Distances between ascending indices as bytes: FURTHER for every 255, then the rest. Length (−1: no room)."""
    length, before = 0, -1
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
