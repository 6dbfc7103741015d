"""Compute the test accuracy of a network, and the recall of each class."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import config
from ..data import Dataset, as_floats
from ..models.networks import resize
from ..runtime.evaluation_result import MAX_PARTS, RECALL, EvaluationResult, significant
from ..runtime.mxnet_import import mx
from .batch_norm import reestimate_statistics

#: Largest number of pixels in one forward pass; there are fewer images in it if they are large.
MAX_PIXELS = config.EVAL_BATCH_SIZE * 28 * 28


def spread(values: np.ndarray, count: int | None) -> np.ndarray:
    """Return `count` evenly spaced images or labels, or all if `count` is None or too large."""
    if count is None or count >= len(values):
        return values
    return values[np.arange(count) * len(values) // count]


def predictions(net: object, images: np.ndarray, size: int | None, context: object) -> np.ndarray:
    """Return the class that `net` predicts for each image.

    Args:
        net: the network.
        images: images as in `data.Dataset`.
        size: height and width of the network's input; None stands for those of the images.
        context: the MXNet device.
    """
    batch = max(1, MAX_PIXELS // (size**2 if size is not None else math.prod(images.shape[1:][-2:])))
    predicted = []
    for start in range(0, len(images), batch):
        inputs = resize(mx.nd.array(as_floats(images[start : start + batch]), ctx=context), size)
        outputs = net(inputs)  # type: ignore[operator]
        scores = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        predicted.append(scores.asnumpy().argmax(axis=1))
    return np.concatenate(predicted)


def recall_by_class(predicted: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Return the share of each class's images that are classified correctly, as `recall/NAME`.

    Classes without images are left out.

    Args:
        predicted: predicted class of each image.
        labels: label of each image.
        names: names of the classes.
    """
    tested = np.bincount(labels, minlength=len(names))
    right = np.bincount(labels[predicted == labels], minlength=len(names))
    return {
        f"{RECALL}{name}": significant(float(count / total))
        for name, count, total in zip(names, right, tested, strict=True)
        if total
    }


class AccuracyEvaluator:
    """Evaluates a network on a data set's test images, as often as it is called.

    Args:
        net: the network.
        dataset: the data set.
        size: height and width of the network's input; None stands for those of the images.
        context: the MXNet device.
        test_images: number of test images to evaluate; None for all.
        estimated: training images from which batch norm's statistics are estimated before every
            evaluation; None keeps the running statistics.
    """

    def __init__(
        self,
        net: Any,
        dataset: Dataset,
        size: int | None,
        context: Any,
        test_images: int | None = None,
        estimated: int | None = None,
    ) -> None:
        self._net, self._size, self._context = net, size, context
        self._names = dataset.labels
        self._all = dataset.test_images, dataset.test_labels
        self._some = spread(self._all[0], test_images), spread(self._all[1], test_images)
        self._estimated = None if estimated is None else spread(dataset.train_images, estimated)

    def __call__(self, every_sample: bool = True) -> EvaluationResult:
        """Return the current accuracy of the network, and the recall of up to MAX_PARTS classes.

        Args:
            every_sample: evaluate all test images, not only `test_images` of them.
        """
        if self._estimated is not None:
            reestimate_statistics(self._net, self._estimated, self._size, self._context)
        images, labels = self._all if every_sample else self._some
        predicted = predictions(self._net, images, self._size, self._context)
        right = int((predicted == labels).sum())
        recalls = recall_by_class(predicted, labels, self._names) if len(self._names) <= MAX_PARTS else {}
        return EvaluationResult(right / len(labels), recalls)
