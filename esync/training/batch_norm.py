"""Estimate the statistics of batch norm anew from training images.

Running statistics belong to the weights of the iterations that they were gathered in. Averaged
weights are others, and in ESync's first rounds the mean of the workers' running statistics does not
fit them: a model that classifies well seems to be at chance.
"""

from typing import Any

import numpy as np

from .. import config
from ..data import as_floats
from ..models.networks import resize
from ..runtime.errors import ExpectedError
from ..runtime.mxnet_import import mx


def reestimate_statistics(net: Any, images: np.ndarray, size: int | None, context: Any) -> None:
    """Replace the running statistics of batch norm by the moments of these images.

    Each layer gets mean and variance of its inputs over all images, computed in batches of the
    default size with the weights as they are. The variance is that of the pooled images: the mean of
    the second moments minus the square of the mean.

    Args:
        net: the network, whose gradients are overwritten.
        images: training images as in `data.Dataset`.
        size: height and width of the network's input; None stands for those of the images.
        context: the MXNet device.

    Raises:
        ExpectedError: the network has no batch norm with running statistics.
    """
    layers = layers_with_statistics(net)
    sums = [[0.0, 0.0] for _ in layers]
    for start in range(0, len(images), config.BATCH_SIZE):
        batch = images[start : start + config.BATCH_SIZE]
        for layer in layers:
            for running in (layer.running_mean, layer.running_var):
                running.set_data(mx.nd.zeros(running.shape))
        # MXNet 1.9.1 updates running statistics in the backward pass only.
        with mx.autograd.record():
            outputs = net(resize(mx.nd.array(as_floats(batch), ctx=context), size))
        mx.autograd.backward(list(outputs) if isinstance(outputs, list | tuple) else [outputs])
        mx.nd.waitall()  # a compiled network's backward pass does not tell that it writes running statistics
        for layer, total in zip(layers, sums, strict=True):
            # Beginning with zeros, the running value is the batch's, times 1 − momentum.
            share = 1.0 - layer._kwargs["momentum"]
            mean = layer.running_mean.data().asnumpy().astype(np.float64) / share
            variance = layer.running_var.data().asnumpy().astype(np.float64) / share
            total[0] = total[0] + len(batch) * mean
            total[1] = total[1] + len(batch) * (variance + mean**2)
    for layer, (first, second) in zip(layers, sums, strict=True):
        mean = first / len(images)
        layer.running_mean.set_data(mx.nd.array(mean))
        layer.running_var.set_data(mx.nd.array(np.maximum(second / len(images) - mean**2, 0.0)))


def layers_with_statistics(net: Any) -> list[Any]:
    """Return a network's batch norm layers that keep running statistics.

    Raises:
        ExpectedError: there is none.
    """
    found: list[Any] = []
    kinds = (mx.gluon.nn.BatchNorm, mx.gluon.nn.BatchNormReLU)

    def collect(block: Any) -> None:
        if isinstance(block, kinds) and not block._kwargs["use_global_stats"]:
            found.append(block)

    net.apply(collect)
    if not found:
        raise ExpectedError(
            "--reestimate-statistics: the network has no batch norm whose statistics could be estimated anew; leave "
            "it out"
        )
    return found
