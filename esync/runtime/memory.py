"""Arrays of MXNet seen from NumPy: zero-copy views of host memory, and a GPU as the server's working memory."""

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from .mxnet_import import mx

#: Values of a block that stays in the processor's cache while it is worked on.
BLOCK = 32_768


def host_view(array: Any) -> np.ndarray:
    """Return a NumPy view, without a copy, of a float32 NDArray in host memory; it has the array's shape.

    Asking for the address also puts a weight that a forward pass has left in oneDNN's own layout
    back into the plain one. The view does not take part in MXNet's engine: wait for pending
    operations first, and keep the array alive.
    """
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    floats = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(floats, shape=array.shape)


def is_plain(array: Any) -> bool:
    """Whether `host_view` can be used: dense float32 values in host memory."""
    return array.context.device_type == "cpu" and array.dtype == np.float32 and array.stype == "default"


class DeviceMemory:
    """Working memory of a parameter server on a GPU (flag -g); see `protocol.payload_staging.Memory`."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def stage(self, values: np.ndarray) -> Any:
        """Copy to the GPU; done with `values` on return."""
        copy = mx.nd.array(values, ctx=self._context, dtype=np.float32)
        copy.wait_to_read()
        return copy

    def work_on(self, values: np.ndarray) -> Any:
        """Return a copy on the GPU."""
        return self.stage(values)

    def assign(self, kept: Any, new: Any) -> Any:
        """Keep the rule's result as it is."""
        return new

    def undo_rounding(self, new: Any, before: Any, tolerance: float) -> None:
        """See `protocol.payload_staging.Memory`."""
        new[:] = mx.nd.where(mx.nd.abs(new - before) <= tolerance * mx.nd.abs(before), before, new)

    def fetch(self, array: Any) -> np.ndarray:
        """Return the values in host memory."""
        return array.asnumpy()

    def release(self, arrays: Iterable[Any]) -> None:
        """Nothing to do: MXNet's own memory pool keeps the blocks."""
