"""Inception-v3 with a quarter of its channels, for images of 107 × 107 pixels instead of 299 × 299."""

from typing import Any

#: Height and width of the images, in pixels; at least 75.
SIZE = 107


def inception_v3(classes: int) -> Any:
    """Return the network, not initialized; its input (n, channels, height, width) may have any size."""
    from mxnet.gluon import nn

    from esync.models.networks import MODELS

    inception = MODELS["inception-v3"].build(classes, width=0.25)
    # Global, because the last feature map is smaller than the 8 × 8 of the published pooling.
    last_pool = [layer for layer in inception.features if isinstance(layer, nn.AvgPool2D)][-1]
    last_pool._kwargs.update(kernel=(1, 1), global_pool=True)
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(_resized), inception)
    return net


def _resized(F: Any, images: Any) -> Any:  # noqa: N803 - Gluon's name
    return F.contrib.BilinearResize2D(images, height=SIZE, width=SIZE, align_corners=False)
