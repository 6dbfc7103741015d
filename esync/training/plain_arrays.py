"""The arrays of a network that are no Parameters, such as hand-written moving averages."""

import zlib
from collections.abc import Iterator
from typing import Any

from ..runtime.mxnet_import import mx


class PlainArrays:
    """The NDArrays that are attributes of a network's blocks, as they were when this object was created.

    They are neither exchanged nor written to checkpoints, and stay the same in a fork.

    Args:
        net: the network.
    """

    def __init__(self, net: Any) -> None:
        self._net = net
        self._before = dict(_check_sums(net))

    def changed(self) -> list[str]:
        """Return the names of those whose values have changed, such as `batchnorm0.moving_mean`."""
        return [name for name, check_sum in _check_sums(self._net) if self._before.get(name, check_sum) != check_sum]


def _check_sums(block: Any) -> Iterator[tuple[str, int]]:
    for name, value in vars(block).items():
        if isinstance(value, mx.nd.NDArray):
            yield f"{block.name}.{name}", zlib.crc32(value.asnumpy())
    for child in block._children.values():
        yield from _check_sums(child)
