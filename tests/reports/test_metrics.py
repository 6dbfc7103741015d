"""Metrics of runs, against numbers worked out by hand."""

import pytest

from esync.reports import metrics


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.5, 0.8, 0.79, 0.9], 20.0), ([0.5, 0.7999, 0.79, 0.9], 40.0), ([0.5, 0.79, 0.1, 0.2], None)],
)
def test_time_to_target_is_the_first_evaluation_at_or_above_it(values: list[float], expected: float | None) -> None:
    assert metrics.time_to_target([10.0, 20.0, 30.0, 40.0], values, 0.8) == expected


def test_limits_and_efficiency_of_the_papers_cluster() -> None:
    seconds = [0.03, 0.03, 3.5, 0.03, 0.03, 3.5]  # 4 · 64 / 0.03 + 2 · 64 / 3.5 = 8533.33 + 36.57
    limit = metrics.speed_limit([64] * 6, seconds)
    assert limit == pytest.approx(8569.90, abs=0.01)
    assert metrics.efficiency(1560.0, limit) == pytest.approx(0.18203, abs=1e-5)
    assert metrics.speedup_limit([64 / duration for duration in seconds]) == pytest.approx(4.017, abs=0.001)
    assert metrics.speedup_limit([10.0, 30.0], alone=10.0) == pytest.approx(4.0)
