"""The specification's worked examples: one layer of four values, one of them sent, η = m = 0.5."""

import numpy as np
import pytest

from esync.exchange.codecs.sparse import bounds_of
from esync.exchange.codecs.sparse.compressors import DeepGradientCompression, GradientDropping, SAMomentum
from esync.exchange.codecs.sparse.differences import DifferenceTracker
from esync.exchange.codecs.sparse.message_format import MessageFormat
from esync.exchange.codecs.sparse.selection import Selection

GRADIENTS = [[1, -2, 0.5, 0.25], [0.5, 0.1, -0.75, 0.5], [-0.2, 0.3, 1, 0.125]]


def selection() -> Selection:
    return Selection([4], 0.25, dense_below=0)


def dense(sparse: tuple[np.ndarray, np.ndarray], size: int = 4) -> list[float]:
    values = np.zeros(size, np.float32)
    values[sparse[0]] = sparse[1]
    return values.tolist()


def close(expected: list[float]) -> object:
    return pytest.approx(expected, rel=1e-6, abs=1e-7)


STEPS = [[0, -1, 0, 0], [0.75, 0, 0, 0], [0, 0, 0, 0.4375]]


@pytest.mark.parametrize(
    ("kind", "steps", "expected"),
    [
        (
            GradientDropping,
            STEPS,
            {"residual": [[0.5, 0, 0.25, 0.125], [0, 0.05, -0.125, 0.375], [-0.1, 0.2, 0.375, 0]]},
        ),
        (
            SAMomentum,
            STEPS,
            {"residual": [[0.5, -0.5, 0.25, 0.125], [0.375, -0.45, -0.125, 0.375], [0.275, -0.3, 0.375, 0.21875]]},
        ),
        (
            DeepGradientCompression,
            [[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0.65625]],
            {
                "velocity": [[1, 0, 0.5, 0.25], [0, 0.1, -0.5, 0.625], [-0.2, 0.35, 0.75, 0]],
                "residual": [[1, 0, 0.5, 0.25], [0, 0.1, 0, 0.875], [-0.2, 0.45, 0.75, 0]],
            },
        ),
    ],
)
def test_compressor_follows_the_worked_example(kind, steps, expected) -> None:
    compressor = kind(selection())
    for number, (gradient, step) in enumerate(zip(GRADIENTS, steps, strict=True)):
        assert dense(compressor.compress(np.float32(gradient), 0.5, 0.5)) == close(step)
        for name, values in expected.items():
            assert getattr(compressor, name).tolist() == close(values[number])


MESSAGES = [(1, [0, -1, 0, 0]), (2, [0.5, 0, 0, 0]), (1, [0, 0, 0, 0.25]), (2, [0, 0.125, 0, 0])]


@pytest.mark.parametrize(
    ("secondary", "answers", "expected"),
    [
        (
            None,
            [[0, 1, 0, 0], [-0.5, 1, 0, 0], [-0.5, 0, 0, -0.25], [0, -0.125, 0, -0.25]],
            {1: [-0.5, 1, 0, -0.25], 2: [-0.5, 0.875, 0, -0.25]},
        ),
        (
            selection(),
            [[0, 1, 0, 0], [0, 1, 0, 0], [-0.5, 0, 0, 0], [-0.5, 0, 0, 0]],
            {1: [-0.5, 1, 0, 0], 2: [-0.5, 1, 0, 0]},
        ),
    ],
)
def test_difference_tracker_follows_the_worked_example(
    secondary: Selection | None, answers: list[list[float]], expected: dict[int, list[float]]
) -> None:
    message_format, offsets = MessageFormat(bounds_of([4])), bounds_of([4])
    tracker = DifferenceTracker(message_format, offsets, 3, secondary)
    weights = np.zeros(4, np.float32)
    tracker.bind_weights(0, weights)
    sent = {worker: np.zeros(4, np.float32) for worker in (1, 2)}
    for worker, values in sent.items():
        tracker.join(worker)
        tracker.init_weights(worker, 0, values)
    for (worker, step), answer in zip(MESSAGES, answers, strict=True):
        weights -= np.float32(step)
        tracker.changed(np.flatnonzero(step))
        assert dense(message_format.decode(tracker.answer(worker).whole())) == answer
    assert {worker: values.tolist() for worker, values in sent.items()} == expected
    assert weights.tolist() == [-0.5, 0.875, 0, -0.25]
