"""Warnings of classes that are never recognized."""

import numpy as np
import pytest

from esync.training.callbacks import Evaluated
from esync.training.unrecognized_classes import UnrecognizedClasses

LABELS = np.arange(100) % 4
#: Worker 0 holds the classes 0 and 1, worker 1 class 2, worker 2 the classes 2 and 3.
SHARES = [
    np.flatnonzero(LABELS < 2),
    np.flatnonzero(LABELS == 2)[::2],
    np.concatenate([np.flatnonzero(LABELS == 2)[1::2], np.flatnonzero(LABELS == 3)]),
]


def evaluations(count: int, samples: int, **recalls: float):
    parts = {f"recall/{name}": value for name, value in {"a": 0.9, "b": 0.8, "c": 0.6, "d": 0.5, **recalls}.items()}
    for number in range(1, count + 1):
        yield Evaluated(number, number, 0.9, float(number), number, samples * number, parts=parts)


@pytest.mark.parametrize(
    ("happened", "warned"),
    [
        (evaluations(20, 25, c=0.0), "class c (held by workers 1, 2) has been recognized in the last 5 evaluations"),
        (
            evaluations(20, 10, b=0.9, c=0.0, d=0.0),
            "c (held by workers 1, 2), d (held by worker 2) has been recognized in the last 11 ",
        ),
        (evaluations(20, 25, c=0.01), ""),
        (evaluations(10, 10, c=0.0), ""),  # the training set has not been used once since the first
        (evaluations(4, 100, c=0.0), ""),
        (evaluations(20, 25, a=0.86, b=0.0, c=0.44, d=0.44), ""),  # near chance, 0.435 on the mean
        (evaluations(20, 25, a=0.88, b=0.0, c=0.44, d=0.44), "class b (held by worker 0) has been recognized"),
    ],
)
def test_class_without_recall_is_warned_of_once(caplog, happened, warned):
    callback = UnrecognizedClasses()
    callback.hold("abcd", LABELS, SHARES)
    for evaluated in happened:
        callback.accuracy(evaluated)
    assert warned in caplog.text
    assert len(caplog.records) == bool(warned)


def test_class_that_is_recognized_in_between_is_counted_anew(caplog):
    callback = UnrecognizedClasses(lambda: len(LABELS))
    callback.hold("abcd", LABELS, [np.arange(100)])
    for part in (evaluations(4, 100, c=0.0), evaluations(1, 500), evaluations(4, 600, c=0.0)):
        for evaluated in part:
            callback.accuracy(evaluated)
    assert not caplog.records


@pytest.mark.parametrize("parts", [{"loss": 0.5}, {"recall/a": 0.9, "recall/b": 0.8, "recall/d": 0.5}])
def test_evaluation_that_says_nothing_of_a_class_ends_its_count(caplog, parts):
    callback = UnrecognizedClasses(lambda: 0)
    for _ in range(3):
        for evaluated in evaluations(4, 100, c=0.0):
            callback.accuracy(evaluated)
        callback.accuracy(Evaluated(5, 5, 0.9, 5.0, 5, 500, parts=parts))
    assert not caplog.records


@pytest.mark.parametrize(("recall", "warned"), [(1.0, True), (0.6, True), (0.0, False)])
def test_one_of_two_classes_is_warned_of_although_the_mean_is_that_of_guessing(caplog, recall, warned):
    callback = UnrecognizedClasses(lambda: len(LABELS))
    for number in range(1, 8):
        parts = {"recall/healthy": recall, "recall/ill": 0.0}
        callback.accuracy(Evaluated(number, number, 0.9, float(number), number, 25 * number, parts=parts))
    assert len(caplog.records) == warned
    assert ("no test sample of class ill has been recognized in the last 5" in caplog.text) == warned
