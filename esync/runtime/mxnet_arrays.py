"""NumPy views of MXNet arrays in host memory."""

import ctypes
from typing import Any

import numpy as np

from .mxnet_import import mx

#: Number of values in a block that stays in the processor's cache while it is processed.
BLOCK = 32_768


def host_view(array: Any) -> np.ndarray:
    """Return a NumPy view of a float32 NDArray in host memory, with the same shape.

    A weight that a forward pass has left in oneDNN's own layout is converted to the plain one. MXNet's
    engine does not track the view: wait for pending operations first, and keep the array alive.
    """
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    floats = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(floats, shape=array.shape)


def like(array: Any, other: Any) -> Any:
    """Return an array, without a copy, as an array of mx.nd or of mx.np, like `other`."""
    return array.as_np_ndarray() if isinstance(other, mx.np.ndarray) else array.as_nd_ndarray()


def array_module() -> Any:
    """Return the module of arrays for networks: mx.np after `npx.set_np`, otherwise mx.nd."""
    return mx.np if mx.util.is_np_array() else mx.nd


def is_plain(array: Any) -> bool:
    """Return whether `host_view` supports an array: dense float32 values in host memory."""
    return array.context.device_type == "cpu" and array.dtype == np.float32 and array.stype == "default"
