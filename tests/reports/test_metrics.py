"""Metrics of runs, against numbers worked out by hand."""

import pytest

from esync.reports import metrics


def test_time_to_target_is_the_first_evaluation_at_or_above_it() -> None:
    times = [10.0, 20.0, 30.0, 40.0]
    assert metrics.time_to_target(times, [0.5, 0.8, 0.79, 0.9], 0.8) == 20.0
    assert metrics.time_to_target(times, [0.5, 0.7999, 0.79, 0.9], 0.8) == 40.0


def test_time_to_target_of_a_run_that_never_reaches_it_is_none() -> None:
    assert metrics.time_to_target([10.0, 20.0], [0.5, 0.79], 0.8) is None
    assert metrics.time_to_target([], [], 0.8) is None


def test_speedup_is_the_ratio_of_times_or_none() -> None:
    assert metrics.speedup(3600.0, 540.0) == pytest.approx(6.6667, abs=1e-4)
    assert metrics.speedup(None, 540.0) is None
    assert metrics.speedup(3600.0, None) is None


def test_speed_limit_and_efficiency_of_the_papers_cluster() -> None:
    # 4 · 64 / 0.03 + 2 · 64 / 3.5 = 8533.33 + 36.57
    limit = metrics.speed_limit([64] * 6, [0.03, 0.03, 3.5, 0.03, 0.03, 3.5])
    assert limit == pytest.approx(8569.90, abs=0.01)
    assert metrics.efficiency(1560.0, limit) == pytest.approx(0.18203, abs=1e-5)


def test_speedup_limit_of_the_papers_cluster_is_the_sum_over_the_fastest() -> None:
    speeds = [64 / seconds for seconds in (0.03, 0.03, 3.5, 0.03, 0.03, 3.5)]
    assert metrics.speedup_limit(speeds) == pytest.approx(4.017, abs=0.001)
    assert metrics.speedup_limit([10.0, 10.0, 10.0]) == pytest.approx(3.0)
    assert metrics.speedup_limit([10.0, 30.0], alone=10.0) == pytest.approx(4.0)


def test_speedup_limit_with_unknown_device_speed_is_none() -> None:
    assert metrics.speedup_limit([10.0, None]) is None
    assert metrics.speedup_limit([]) is None


def test_device_speed_is_that_of_its_step_time_or_else_as_measured() -> None:
    assert metrics.device_speed(64, 0.5, 100, [9.0]) == 128.0
    assert metrics.device_speed(64, None, 100, [2.0, 3.0]) == pytest.approx(20.0)
    assert metrics.device_speed(None, 0.5, 100, [2.0]) is None
    assert metrics.device_speed(64, None, 100, []) is None


def test_speed_limit_with_unknown_device_speed_is_none() -> None:
    assert metrics.speed_limit([64, 64], [0.03, None]) is None
    assert metrics.speed_limit([64, None], [0.03, 3.5]) is None
    assert metrics.efficiency(100.0, None) is None
    assert metrics.efficiency(None, 100.0) is None


def test_computing_ratio_and_the_published_formula_equal_those_by_hand() -> None:
    # 10 s: 2 + 3 computing, 1 + 1.5 aggregating; the remaining 2.5 s pass for computing in the
    # published formula
    assert metrics.computing_ratio([2.0, 3.0], 10.0) == pytest.approx(0.5)
    assert metrics.published_computing_ratio([1.0, 1.5], 10.0) == pytest.approx(0.75)


def test_computing_ratio_without_computing_times_is_none() -> None:
    assert metrics.computing_ratio([], 10.0) is None


def test_rates_of_a_run_without_time_are_none() -> None:
    assert metrics.rate(640.0, 0.0) is None
    assert metrics.computing_ratio([1.0], 0.0) is None
    assert metrics.published_computing_ratio([1.0], 0.0) is None
    assert metrics.rate(640.0, 4.0) == 160.0


def test_mean_and_max_leave_out_unknown_values() -> None:
    assert metrics.mean_and_max([0.1, None, 0.5]) == (pytest.approx(0.3), 0.5)
    assert metrics.mean_and_max([None, None]) is None
    assert metrics.mean_and_max([]) is None


def test_share_of_nothing_is_0() -> None:
    assert metrics.share(3, 200) == 0.015
    assert metrics.share(0, 0) == 0.0
