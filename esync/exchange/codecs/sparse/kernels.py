"""The inner loops of sparse messages, compiled by numba on first use (cached for later processes).

Each makes one pass over its arrays; NumPy would need several, and memory is the bottleneck.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ....runtime.machine_code import machine_code

#: Compiles a function with IEEE floats, so that workers and servers compute the same.
compiled = machine_code()

#: Number of values that are prefetched ahead of their use.
AHEAD = 1024
#: Byte of a code: skip 255 positions and continue with the next byte.
FURTHER = 255


@compiled
def list_large(values: np.ndarray, threshold: float, indices: np.ndarray) -> int:
    """Write the indices of values with |value| ≥ least, ascending.

    Returns:
        Their number; −1: there are more than `indices` has room for.
    """
    count = 0
    for index in range(values.size):
        if abs(values[index]) >= threshold:
            if count == indices.size:
                return -1
            indices[count] = index
            count += 1
    return count


@intrinsic
def prefetch(typing_context: Any, values: Any, index: Any) -> Any:
    """Prefetch values[index], which need not exist, without waiting."""

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
def encode_gaps(indices: np.ndarray, before: int, code: np.ndarray, length: int) -> int:
    """Encode distances between ascending indices as bytes: FURTHER for every 255, then the rest.

    Args:
        indices: the indices to code.
        before: the last index before them; −1: none.
        code: output (uint8).
        length: number of bytes written before.

    Returns:
        The number of bytes written in total; −1: there is not enough room.
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
def decode_gaps(code: np.ndarray, indices: np.ndarray) -> None:
    """Decode a code of `encode_gaps` with exactly `indices.size` indices."""
    entry, index = 0, -1
    for position in range(code.size):
        if code[position] == FURTHER:
            index += FURTHER
            continue
        index += code[position] + 1
        indices[entry] = index
        entry += 1
