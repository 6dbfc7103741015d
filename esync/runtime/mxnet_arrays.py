"""MXNet arrays in host memory seen from NumPy, without a copy."""

import ctypes
from typing import Any

import numpy as np

from .mxnet_import import mx

#: Number of values in a block that stays in the processor's cache while it is processed.
BLOCK = 32_768


def host_view(array: Any) -> np.ndarray:
    """Return a NumPy view, without a copy, of a float32 NDArray in host memory, in its shape.

    This also converts a weight that a forward pass has left in oneDNN's own layout back to the
    plain one. MXNet's engine does not know of the view: wait for pending operations first, and keep
    the array alive.
    """
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    floats = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(floats, shape=array.shape)


def like(array: Any, other: Any) -> Any:
    """Return an array, without a copy, as the kind that another one is, of mx.nd or of mx.np."""
    return array.as_np_ndarray() if isinstance(other, mx.np.ndarray) else array.as_nd_ndarray()


def array_module() -> Any:
    """Return the module whose arrays networks are given now: mx.np after `npx.set_np`, else mx.nd."""
    return mx.np if mx.util.is_np_array() else mx.nd


def is_plain(array: Any) -> bool:
    """Return whether `host_view` works: for dense float32 values in host memory."""
    return array.context.device_type == "cpu" and array.dtype == np.float32 and array.stype == "default"
