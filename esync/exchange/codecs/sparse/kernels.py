"""The inner loops of sparse messages, compiled by numba on first use (cached for later processes).

Each goes through its arrays once; the same in NumPy takes several passes over memory, which is what
limits them.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ....runtime.machine_code import machine_code

#: Compiles a function; floats keep IEEE's rules, so that both ends of a wire compute the same.
compiled = machine_code()

#: Number of values by which prefetching is ahead of their use; memory takes that long to answer.
AHEAD = 1024
#: Byte of a code that means: 255 positions further, and the code goes on.
FURTHER = 255


@compiled
def reaching(values: np.ndarray, least: float, indices: np.ndarray) -> int:
    """Write the places of values with |value| ≥ least, ascending.

    Returns:
        Their number; −1: more than there is room for.
    """
    found = 0
    for place in range(values.size):
        if abs(values[place]) >= least:
            if found == indices.size:
                return -1
            indices[found] = place
            found += 1
    return found


@intrinsic
def prefetch(typing_context: Any, values: Any, place: Any) -> Any:
    """Prefetch values[place], which need not exist; waits for nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), pointer)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(hint, [address, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(values, types.uint64), generate


@compiled
def word_sum(words: np.ndarray) -> int:
    """Return the sum of words (uint32)."""
    total = np.uint64(0)
    for place in range(words.size):
        total += words[place]
    return int(total)


@compiled
def encode_gaps(indices: np.ndarray, before: int, code: np.ndarray, length: int) -> int:
    """Write distances between ascending indices as bytes: FURTHER for every 255, then the rest.

    Args:
        indices: the indices to code.
        before: the last index before them; −1: none.
        code: output (uint8).
        length: number of bytes that are written already.

    Returns:
        The number of bytes that are written then; −1: there is no room.
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
    """Decode what `encode_gaps` has written.

    Returns:
        False where the code does not hold exactly as many indices.
    """
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
