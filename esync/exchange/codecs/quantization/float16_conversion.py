"""Conversion between float32 and the bits of float16 in compiled loops, to nearest, ties to even.

It uses instructions of the processor, or integer operations with the same results. Numba has no
float16 on processors, and NumPy's conversion takes ten times as long.
"""

from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

#: Whether the processor can convert (F16C), and numba compiles for this processor.
NATIVE = bool(
    llvmlite.binding.get_host_cpu_features().get("f16c") and not (numba.config.CPU_NAME or numba.config.CPU_FEATURES)
)

MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIGN, _MAGNITUDE = np.uint32(0x8000), np.uint32(0x7FFF)
_16, _13, _1 = np.uint32(16), np.uint32(13), np.uint32(1)
#: As bits, float32 is float16 times 2¹³ with another bias; and the term that rounds the bits that
#: are cut off.
_BIAS, _ROUND = np.uint32(0x38000000), np.uint32(0xFFF)
#: Below this, float16 is subnormal and has fewer digits; adding ½ in float32 rounds to just these.
_SUBNORMAL, _HALF_SUBNORMAL = np.uint32(0x38800000), np.uint32(0x400)
_MAGIC, _MAGIC_BITS = np.float32(0.5), np.uint32(0x3F000000)


@njit(inline="always")
def half_by_integers(value: np.float32) -> Any:
    """Return the bits (uint32) of the nearest float16, ties to even.

    The value must be within float16's range.
    """
    bits = np.float32(value).view(np.uint32)
    sign, size = (bits >> _16) & _SIGN, bits & MAGNITUDE
    normal = (size + _ROUND + ((size >> _13) & _1) - _BIAS) >> _13
    small = np.float32(np.uint32(size).view(np.float32) + _MAGIC).view(np.uint32) - _MAGIC_BITS
    return (normal if size >= _SUBNORMAL else small) | sign


@njit(inline="always")
def value_by_integers(bits: np.uint32) -> Any:
    """Return the value that the bits (uint32) of a finite float16 stand for."""
    half, sign = bits & _MAGNITUDE, (bits & _SIGN) << _16
    as_normal = np.uint32((half << _13) + _BIAS).view(np.float32)
    as_small = np.uint32(half + _MAGIC_BITS).view(np.float32) - _MAGIC
    decoded = as_normal if half >= _HALF_SUBNORMAL else as_small
    return np.uint32(np.float32(decoded).view(np.uint32) | sign).view(np.float32)


@intrinsic
def half_by_processor(typing_context: Any, value: Any) -> Any:
    """Return the same as `half_by_integers`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = builder.fptrunc(arguments[0], ir.HalfType())
        return builder.zext(builder.bitcast(half, ir.IntType(16)), ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def value_by_processor(typing_context: Any, bits: Any) -> Any:
    """Return the same as `value_by_integers`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = builder.bitcast(builder.trunc(arguments[0], ir.IntType(16)), ir.HalfType())
        return builder.fpext(half, ir.FloatType())

    return types.float32(types.uint32), generate


half, value = (half_by_processor, value_by_processor) if NATIVE else (half_by_integers, value_by_integers)
