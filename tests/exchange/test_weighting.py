"""Weighted means of the workers' updates, against the formulas in NumPy."""

import numpy as np
import pytest

from esync.exchange.protocol.specification import Specification
from esync.exchange.weighting import check, divisor, factor
from esync.rules import add_mean_update

from ..support.memory_servers import MemoryServers, floats


def mean(weighting: str, values: list[np.ndarray], samples: list[int]) -> np.ndarray:
    total = sum(factor(weighting, count) * value for value, count in zip(values, samples, strict=True))
    return total / divisor(weighting, samples)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("uniform", (6 + 30) / 2),
        ("samples", (1 * 6 + 3 * 30) / 4),
        ("normalized", (6 / 1 + 30 / 3) / 2 * (1 + 3) / 2),  # mean direction, times the steps done on average
    ],
)
def test_weighted_mean_equals_the_one_by_hand(weighting, expected):
    assert mean(weighting, [np.float64(6), np.float64(30)], [1, 3]) == expected


def test_weighting_with_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"weighting is 'fair', but should be one of uniform, samples, normalized"):
        check("fair")


@pytest.mark.parametrize(
    ("weighting", "of_statistics", "expected"),
    [
        ("uniform", "as-updates", "uniform"),
        ("samples", "as-updates", "samples"),
        ("normalized", "as-updates", "uniform"),
        ("uniform", "samples", "samples"),
        ("samples", "uniform", "uniform"),
        ("normalized", "samples", "samples"),
    ],
)
def test_server_applies_the_weightings_to_updates_and_statistics(weighting, of_statistics, expected):
    samples, initial, statistics = [10, 640, 64], floats(1, 7), floats(2, 4)
    weightings = {"weighting": weighting, "statistics_weighting": of_statistics}
    cluster = MemoryServers(3, initial, statistics, servers=2, bucket_elements=3, rule=add_mean_update, **weightings)
    updates, stats = [floats(10 + rank, 7) for rank in range(3)], [floats(20 + rank, 4) for rank in range(3)]
    for rank in (2, 0, 1):
        cluster.send(rank, 1, updates[rank], stats[rank], learning_rate=0.5, samples=samples[rank])
    after = initial + np.float32(0.5) * mean(weighting, updates, samples)
    np.testing.assert_allclose(cluster.weights(), after, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cluster.statistics(), mean(expected, stats, samples), rtol=1e-5, atol=1e-6)


def test_statistics_weighting_with_unknown_name_is_refused():
    specification = Specification("add_mean_update", True, statistics_weighting="normalized")
    with pytest.raises(ValueError, match="statistics weighting is 'normalized', but should be one of as-updates, uni"):
        specification.weightings()
