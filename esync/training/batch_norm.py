"""Re-estimate the statistics of batch norm from training images.

Running statistics depend on the weights during which they were gathered. In ESync's first rounds, the
mean of the workers' running statistics does not match the averaged weights, so that a good model seems to
have the accuracy of guesses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import config
from ..data import as_floats
from ..models.networks import resize
from ..runtime.errors import ExpectedError
from ..runtime.mxnet_import import mx


def reestimate_statistics(net: Any, images: np.ndarray, size: int | None, context: Any) -> None:
    """Replace the running statistics of batch norm by the moments of these images.

    Each layer gets the mean and variance of all its inputs for these images, computed in batches of the
    default size with the current weights, over all uses of the layer. The variance is that of the pooled
    values: the mean of the second moments minus the square of the mean. Unused layers are not changed.

    Args:
        net: the network.
        images: training images as in `data.Dataset`.
        size: height and width of the network's input; None stands for those of the images.
        context: the MXNet device.

    Raises:
        ExpectedError: the network has no batch norm with running statistics.
    """
    moments = [_Moments(layer) for layer in layers_with_statistics(net)]
    hooks = [moment.layer.register_forward_pre_hook(moment.observe) for moment in moments]
    try:
        with _interpreted(net), mx.autograd.train_mode():
            for start in range(0, len(images), config.BATCH_SIZE):
                batch = mx.nd.array(as_floats(images[start : start + config.BATCH_SIZE]), ctx=context)
                net(resize(batch, size))
                for moment in moments:
                    moment.add()
    finally:
        for hook in hooks:
            hook.detach()
    for moment in moments:
        moment.store()


class _Moments:
    """Accumulates the first two moments of a batch norm layer's inputs."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self._observed: list[tuple[int, Any, Any]] = []  # of each use: number of values, mean, variance
        self._sums: np.ndarray | None = None  # number of values, sum of these and of their squares

    def observe(self, layer: Any, inputs: tuple[Any, ...]) -> None:
        """Start to compute the moments of an input; a hook of the layer."""
        values = inputs[0].astype(np.float32)
        mean = values.mean(axis=layer._kwargs["axis"], exclude=True, keepdims=True)
        variance = mx.nd.square(mx.nd.broadcast_sub(values, mean)).mean(axis=layer._kwargs["axis"], exclude=True)
        self._observed.append((values.size // variance.size, mean.reshape(-1), variance))

    def add(self) -> None:
        """Add the computed moments to the sums."""
        for count, *computed in self._observed:
            mean, variance = (array.asnumpy().astype(np.float64) for array in computed)
            sums = count * np.array([np.ones_like(mean), mean, variance + mean**2])
            self._sums = sums if self._sums is None else self._sums + sums
        self._observed = []

    def store(self) -> None:
        """Set the layer's statistics to mean and variance of all values."""
        if self._sums is None:
            return
        count, first, second = self._sums
        mean = first / count
        self.layer.running_mean.set_data(mx.nd.array(mean))
        self.layer.running_var.set_data(mx.nd.array(np.maximum(second / count - mean**2, 0.0)))


@contextmanager
def _interpreted(net: Any) -> Iterator[None]:
    """Disable hybridization temporarily, so that hooks get arrays; compiled graphs are kept."""
    active: list[Any] = []
    net.apply(lambda block: active.append(block) if getattr(block, "_active", False) else None)
    for block in active:
        block._active = False
    try:
        yield
    finally:
        for block in active:
            block._active = True


def layers_with_statistics(net: Any) -> list[Any]:
    """Return a network's batch norm layers that keep running statistics.

    Raises:
        ExpectedError: the network has none.
    """
    layers: list[Any] = []
    kinds = (mx.gluon.nn.BatchNorm, mx.gluon.nn.BatchNormReLU)

    def collect(block: Any) -> None:
        if isinstance(block, kinds) and not block._kwargs["use_global_stats"]:
            layers.append(block)

    net.apply(collect)
    if not layers:
        raise ExpectedError(
            "--reestimate-statistics: the network has no batch norm whose statistics could be estimated anew; leave "
            "it out"
        )
    return layers
