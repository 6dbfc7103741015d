"""Compute the test accuracy of a network."""

import numpy as np

from .. import config
from ..data import as_floats
from ..models.networks import resize
from ..runtime.mxnet_import import mx

#: Images of one forward pass are fewer where they are large, by this many pixels in all.
MOST_PIXELS = config.EVAL_BATCH_SIZE * 28 * 28


def spread(images: np.ndarray, labels: np.ndarray, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return that many of the images and labels, evenly spread; None, or more than there are: all."""
    if count is None or count >= len(images):
        return images, labels
    chosen = np.arange(count) * len(images) // count
    return images[chosen], labels[chosen]


def accuracy(net: object, images: np.ndarray, labels: np.ndarray, size: int, context: object) -> float:
    """Return the share of images (uint8) that `net` classifies as their labels say."""
    batch = max(1, MOST_PIXELS // size**2)
    right = 0
    for start in range(0, len(images), batch):
        inputs = resize(mx.nd.array(as_floats(images[start : start + batch]), ctx=context), size)
        outputs = net(inputs)  # type: ignore[operator]
        scores = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        right += int((scores.asnumpy().argmax(axis=1) == labels[start : start + batch]).sum())
    return right / len(images)
