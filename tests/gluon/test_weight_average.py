"""The average of common models, against its definition."""

import numpy as np
import pytest

from esync.exchange import Flat
from esync.gluon import weight_average
from esync.gluon.weight_average import ETA, WeightAverage


def models(count: int, size: int) -> list[np.ndarray]:
    return list(np.random.default_rng(3).normal(size=(count, size)).astype(np.float32))


def averaged(values: list[np.ndarray], average: WeightAverage) -> WeightAverage:
    for model in values:
        average.add(Flat(model), Flat(model[:2]))
    return average


@pytest.mark.parametrize("count", [1, 2, 40])
def test_average_weighs_models_by_a_polynomial_of_their_number(count, monkeypatch):
    """Model i has the weight i (i + 1) … (i + η - 1), up to a factor."""
    monkeypatch.setattr(weight_average, "BLOCK", 3)  # several blocks, the last one shorter
    values = models(count, 7)
    weights = np.array([np.prod([float(i + k) for k in range(ETA)]) for i in range(1, count + 1)])
    expected = (weights / weights.sum()) @ np.array(values, float)
    average = averaged(values, WeightAverage())
    assert average.weights.values == pytest.approx(expected, abs=1e-6)
    assert average.statistics.values == pytest.approx(expected[:2], abs=1e-6)


def test_average_goes_on_from_its_state_bit_for_bit():
    values = models(9, 5)
    other = WeightAverage()
    other.restore({name: np.copy(value) for name, value in averaged(values[:4], WeightAverage()).state().items()})
    reference = averaged(values, WeightAverage())
    assert averaged(values[4:], other).weights.values.tobytes() == reference.weights.values.tobytes()


def test_average_adds_every_third_model_from_the_first_one_on():
    average = WeightAverage(3)
    assert [average.due() for _ in range(7)] == [True, False, False, True, False, False, True]
    assert all(WeightAverage().due() for _ in range(3))


def test_average_of_nothing_has_no_state():
    other = WeightAverage()
    other.restore(WeightAverage().state())
    assert other.weights is None


def test_average_of_other_sizes_does_not_fit():
    average = WeightAverage()
    assert average.fits(Flat(np.zeros(3)), Flat(np.zeros(1)))
    averaged(models(2, 5), average)
    assert average.fits(Flat(np.zeros(5)), Flat(np.zeros(2)))
    assert not average.fits(Flat(np.zeros(4)), Flat(np.zeros(2)))
    assert not average.fits(Flat(np.zeros(5)), Flat(np.zeros(3)))
