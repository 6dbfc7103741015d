"""Sizes of the vectors of a network that is not in `timing.SIZES`, by building it."""

import functools
from collections.abc import Mapping

from ..exchange import STATISTICS, WEIGHTS
from ..models.networks import build
from ..runtime.mxnet_import import mx


@functools.lru_cache(maxsize=8)  # a sweep simulates the same network again and again
def vector_sizes(network: str, classes: int, shape: tuple[int, ...]) -> Mapping[str, int]:
    """Return the number of values in a network's weights and statistics.

    Args:
        network: the network's name, as `build` takes it.
        classes: number of classes of the data set.
        shape: shape of a sample.
    """
    net = build(network, classes, mx.cpu(), seed=0, hybridize=False, shape=shape)
    parameters = net.collect_params().values()
    weights = sum(parameter.data().size for parameter in parameters if parameter.grad_req != "null")
    return {WEIGHTS: weights, STATISTICS: sum(parameter.data().size for parameter in parameters) - weights}
