"""The arrays of a network that are no Parameters, such as hand-written moving averages."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.mxnet_import import mx


class PlainArrays:
    """The NDArrays that are attributes of a network's blocks, as they were when this object was created.

    They are neither exchanged nor written to checkpoints, and stay the same in a fork.

    Args:
        net: the network.
    """

    def __init__(self, net: Any) -> None:
        self._net = net
        self._before = {name: array.asnumpy() for name, array in _arrays(net)}

    def changed(self) -> list[str]:
        """Return the names of those whose values have changed, such as `batchnorm0.moving_mean`."""
        return [
            name
            for name, array in _arrays(self._net)
            if name in self._before and not np.array_equal(array.asnumpy(), self._before[name])
        ]


def _arrays(block: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(block).items():
        if isinstance(value, mx.nd.NDArray):
            yield f"{block.name}.{name}", value
    for child in block._children.values():
        yield from _arrays(child)
