"""Master weights: the float32 copies of float16 weights that some optimizers keep.

An optimizer with `multi_precision` adds every step to the copy, and rounds the sum to the network's
weight. So workers exchange the copy: it keeps changes that are too small for float16, and a common
model written only to the network would be overwritten by the next step (Micikevicius et al., ICLR
2018, section 3.1).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.mxnet_import import mx


class NoMasterWeightsError(ExpectedError, ValueError):
    """The state of an optimizer with `multi_precision` does not contain float32 copies as expected."""


class MasterWeights:
    """The float32 master copies of float16 weights in an updater's state.

    Args:
        updater: returns the `mx.optimizer.Updater` that holds the state of the local optimizer,
            which a program may replace.
    """

    def __init__(self, updater: Callable[[], Any]) -> None:
        self._updater = updater
        self._positions: dict[type, int] = {}

    def of(self, index: int, weight: Any) -> Any:
        """Return the copy of weight number `index`, or None if the optimizer keeps none.

        The copy is made if the optimizer has not made it yet.

        Raises:
            NoMasterWeightsError: the optimizer keeps the copy at an unknown position.
        """
        updater, weight = self._updater(), weight.as_nd_ndarray()
        optimizer = updater.optimizer
        if not getattr(optimizer, "multi_precision", False) or weight.dtype != np.float16:
            return None
        if type(optimizer) not in self._positions:
            self._positions[type(optimizer)] = _find_copy(optimizer, weight)
        if index not in updater.states:
            updater.states[index] = optimizer.create_state_multi_precision(index, weight)
            updater.states_synced[index] = True
        elif not updater.states_synced[index]:  # loaded from a file, without the device
            updater.states[index] = updater.sync_state_context(updater.states[index], weight.context)
            updater.states_synced[index] = True
        return updater.states[index][self._positions[type(optimizer)]]


def follow(master: Any, weight: Any) -> None:
    """Set a copy to the weight's value wherever the weight is not the rounded copy."""
    weight = weight.as_nd_ndarray()
    same = master.astype(weight.dtype) == weight
    master[:] = mx.nd.where(same.astype(master.dtype), master, weight.astype(master.dtype))


def _find_copy(optimizer: Any, weight: Any) -> int:
    """Return the position of the copy in an optimizer's state.

    It is the first part in most; in SGD, NAG and LARS it follows the momentum.
    """
    probe = mx.nd.full(weight.shape, 2.0, ctx=weight.context, dtype=weight.dtype)
    state = optimizer.create_state_multi_precision(-1, probe)
    positions = (
        [position for position, part in enumerate(state) if _copies(part, probe)] if isinstance(state, tuple) else []
    )
    if len(positions) != 1:
        raise NoMasterWeightsError(
            f"the optimizer {type(optimizer).__name__!r} has multi_precision, but its state does not show where its "
            "float32 copies of the weights are: its create_state_multi_precision should return a tuple with the copy "
            "and the rest of the state, as those of MXNet's optimizers do (or leave multi_precision out)"
        )
    return positions[0]


def _copies(state: Any, weight: Any) -> bool:
    """Return whether this part of a state is a float32 copy of a weight."""
    if not isinstance(state, mx.nd.NDArray) or state.dtype != np.float32 or state.shape != weight.shape:
        return False
    return bool((state == weight.astype(np.float32)).min().asscalar())
