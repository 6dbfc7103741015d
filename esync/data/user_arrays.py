"""Check a user's data set in arrays, count its classes, and split off a test set."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..runtime.errors import enumeration
from ..runtime.memory import available_memory
from .errors import DataError

#: Images or other samples, and their labels.
LabeledSamples: TypeAlias = tuple[np.ndarray, np.ndarray]

#: Valid samples, for messages and help texts.
SAMPLES = "uint8 images of values 0 to 255, or float16, float32 or float64, which networks get as they are"
#: Largest number of colour planes; an axis of this length or shorter is the axis of colours.
MAX_CHANNELS = 4
#: Without a test set, every n-th sample of each class is set aside for it.
TEST_EVERY = 10


@dataclass(frozen=True, eq=False)
class UserArrays:
    """A user's data set after all checks.

    Attributes:
        train: uint8 or float32 samples of shape (samples, height, width) or (samples, channels,
            height, width), or of any other shape; and int32 labels.
        test: samples and labels of the same form.
        classes: number of classes.
        digest: 12 hexadecimal digits of the SHA-256 of the data set.
    """

    train: LabeledSamples
    test: LabeledSamples
    classes: int
    digest: str


def check_arrays(
    where: str, train: LabeledSamples, test: LabeledSamples | None, class_names: Sequence[str] = ()
) -> UserArrays:
    """Check a data set.

    Args:
        where: origin of the data set, for messages.
        train: training samples and labels.
        test: test samples and labels; None: every tenth training sample of each class is set aside.
        class_names: names of the labels 0, 1, …, if known.

    Raises:
        DataError: the data set is invalid.
    """
    train = _check_samples(f"{where}, training", *train)
    test = _check_samples(f"{where}, test", *test) if test is not None else None
    labels = train[1] if test is None else np.concatenate([train[1], test[1]])
    classes = max(len(class_names), int(labels.max()) + 1)
    _check_labels(where, train[1], classes, class_names)
    train, test = _split(where, train, class_names) if test is None else (train, test)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise DataError(
            f"{where}, test",
            f"samples of shape {test[0].shape[1:]}",
            expected=f"{train[0].shape[1:]}, as those of the training set",
        )
    if train[0].dtype != test[0].dtype:
        raise DataError(f"{where}, test", f"samples of type {test[0].dtype}", expected=f"{train[0].dtype}, as training")
    total = hashlib.sha256()
    for array in (*train, *test):
        array.flags.writeable = False
        total.update(f"{array.dtype} {array.shape};".encode())
        total.update(array.data)
    return UserArrays(train, test, classes, total.hexdigest()[:12])


def require_memory(where: Path | str, needed: int, what: str) -> None:
    """Refuse a data set that does not fit into memory.

    Args:
        where: origin of the data set.
        needed: number of bytes.
        what: description of what needs them.

    Raises:
        DataError: the machine has less memory available.
    """
    available = available_memory()
    if needed > available:
        raise DataError(
            where,
            f"{what} would take {needed / 1e9:.3g} GB of memory, and {available / 1e9:.3g} GB are free",
            remedy="A data set has to fit into the memory of each machine: use smaller images, or fewer of them",
        )


def _check_samples(where: str, samples: np.ndarray, labels: np.ndarray) -> LabeledSamples:
    """Return samples and labels in the types and the order of axes that the batches take."""
    if samples.ndim < 2 or not samples.size:
        raise DataError(
            where, f"samples of shape {samples.shape}", expected="one or more, as (samples, height, width) for instance"
        )
    if samples.dtype != np.uint8:
        if samples.dtype not in (np.float16, np.float32, np.float64):
            raise DataError(where, f"samples of type {samples.dtype}", expected=SAMPLES)
        samples = samples.astype(np.float32, copy=False)
        if not math.isfinite(float(samples.sum(dtype=np.float64))):
            raise DataError(where, "samples with values that are NaN or infinite", expected="numbers")
    if labels.ndim == 2 and labels.shape[1] == 1:  # as Keras's CIFAR
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        wrong = f"labels of type {labels.dtype} and shape {labels.shape}"
        raise DataError(where, wrong, expected="whole numbers of shape (samples,): 0, 1, …, one for each class")
    if len(labels) != len(samples):
        raise DataError(where, f"{len(labels)} labels", expected=f"{len(samples)}, one for each sample")
    if labels.min() < 0 or labels.max() > np.iinfo(np.int32).max:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DataError(where, f"label {wrong}", expected="0, 1, …, one for each class")
    return _channels_first(where, samples), np.ascontiguousarray(labels, np.int32)


def _channels_first(where: str, samples: np.ndarray) -> np.ndarray:
    """Move the axis of colours before height and width; grey images have none."""
    if samples.ndim == 4:
        first, last = (samples.shape[axis] <= MAX_CHANNELS for axis in (1, 3))
        if first and last:
            raise DataError(
                where,
                f"images of shape {samples.shape[1:]}, in which the first or the last axis can be that of the colours",
                expected="images larger than 4 × 4 pixels",
            )
        if last:
            samples = samples.transpose(0, 3, 1, 2)
        if samples.shape[1] == 1:
            samples = samples[:, 0]
    return np.ascontiguousarray(samples)


def _check_labels(where: str, labels: np.ndarray, classes: int, names: Sequence[str]) -> None:
    """Refuse classes without a training sample."""
    if classes < 2:
        raise DataError(where, "one class only", expected="two or more")
    missing = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if len(missing):
        labels_missing = enumeration([_name(label, names) for label in missing], 5)
        raise DataError(
            where,
            f"no training sample has the label {labels_missing}",
            expected=f"each of the labels 0 to {classes - 1} to occur in the training set, which every worker reads "
            "whole",
        )


def _split(where: str, train: LabeledSamples, names: Sequence[str]) -> tuple[LabeledSamples, LabeledSamples]:
    """Set samples aside for the test: every tenth sample of each class, or the last one of fewer than ten."""
    samples, labels = train
    aside = np.zeros(len(labels), bool)
    for label in range(int(labels.max()) + 1):
        places = np.flatnonzero(labels == label)
        if len(places) < 2:
            raise DataError(
                where,
                f"label {_name(label, names)} has one sample, and there is no test set",
                expected="two or more of each class, so that one can be set aside for the test",
            )
        chosen = places[TEST_EVERY - 1 :: TEST_EVERY]
        aside[chosen if len(chosen) else places[-1:]] = True
    return (samples[~aside], labels[~aside]), (samples[aside], labels[aside])


def _name(label: int, names: Sequence[str]) -> str:
    return f"{label} ({names[label]})" if label < len(names) else str(label)
