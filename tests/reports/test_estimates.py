"""Means, intervals and differences, against values from tables and textbooks."""

import math

import pytest

from esync.reports.estimates import difference, estimate, mean_curve, t_quantile


@pytest.mark.parametrize(
    ("freedom", "level", "expected"),
    [  # tables of Student's distribution
        (1, 0.95, 12.706205), (2, 0.95, 4.302653), (4, 0.95, 2.776445), (9, 0.95, 2.262157), (30, 0.95, 2.042272),
        (1000, 0.95, 1.962339), (4, 0.99, 4.604095), (1, 0.5, 1.0),
    ],
)  # fmt: skip
def test_quantiles_of_students_distribution(freedom, level, expected):
    assert t_quantile(freedom, level) == pytest.approx(expected, rel=1e-6)


def test_interval_of_a_mean():
    result = estimate([4.0, 6.0, 8.0])  # sd 2, standard error 2/√3, 2 degrees of freedom
    assert (result.n, result.mean, result.sd) == (3, 6.0, 2.0)
    assert (result.high - 6, 6 - result.low) == pytest.approx((4.302653 * 2 / math.sqrt(3),) * 2, rel=1e-6)


def test_welchs_interval_of_a_difference():
    a, b = [30.02, 29.99, 30.11, 29.97, 30.01, 29.99], [29.89, 29.93, 29.72, 29.98, 30.02, 29.98]
    result = difference(estimate(a), estimate(b))  # Wikipedia, "Student's t-test": t = 1.959, ν = 7.03, p = 0.091
    assert result.value == pytest.approx(0.095, abs=1e-9)
    half = result.high - result.value
    standard_error = 0.095 / 1.959
    assert half / standard_error == pytest.approx(t_quantile(7.031), rel=2e-3)
    assert result.beyond_chance is False
    assert difference(estimate([x + 1 for x in a]), estimate(b)).beyond_chance is True


def test_difference_without_any_variance():
    assert difference(estimate([2.0, 2.0]), estimate([1.0, 1.0])).beyond_chance is True
    assert difference(estimate([1.0, 1.0]), estimate([1.0, 1.0])).beyond_chance is False


def test_share_of_a_negative_reference_has_the_sign_of_the_difference():
    assert difference(estimate([-1.0]), estimate([-2.0])).share == 0.5
    assert difference(estimate([1.0]), estimate([0.0])).share is None


def test_mean_curve_of_runs_evaluated_at_different_times():
    curve = mean_curve([([0, 2, 4], [0.0, 0.2, 0.4]), ([1, 3, 9], [0.3, 0.5, 0.5])])
    assert curve.times == (1, 2, 3, 4)
    assert curve.means == pytest.approx((0.2, 0.3, 0.4, 0.45))
    assert curve.sds[0] == pytest.approx(0.2 / math.sqrt(2))
    assert mean_curve([([0, 1], [1.0, 2.0])]).sds == ()
    assert mean_curve([([0, 1], [1.0, 2.0]), ([2, 3], [1.0, 2.0])]) is None
    assert mean_curve([([], []), ([2, 3], [1.0, 2.0])]) is None
