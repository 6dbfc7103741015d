"""Weighted means of the workers' updates, against the formulas in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange.protocol.specification import Specification
from esync.exchange.weighting import WEIGHTINGS, check, divisor, factor
from esync.rules import add_mean_update, outer_nesterov

from .memory_servers import MemoryServers, floats


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


@settings(max_examples=30)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(1, 50))
def test_weighted_means_agree_where_formulas_do(counts, samples):
    """With equal samples all are the plain mean; normalized, parallel updates have their average length."""
    alike = [mean(weighting, counts, [samples] * len(counts)) for weighting in WEIGHTINGS]
    assert alike == pytest.approx([np.mean(counts)] * 3)
    assert mean("normalized", [2.0 * count for count in counts], counts) == pytest.approx(2.0 * np.mean(counts))


def test_weighting_with_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"weighting is 'fair', but should be one of uniform, samples, normalized"):
        check("fair")


@pytest.mark.parametrize(
    ("weighting", "of_statistics", "expected", "servers"),
    [
        ("uniform", "as-updates", "uniform", 1),
        ("samples", "as-updates", "samples", 2),
        ("normalized", "as-updates", "uniform", 2),
        ("uniform", "samples", "samples", 2),
        ("samples", "uniform", "uniform", 1),
        ("normalized", "samples", "samples", 1),
    ],
)
def test_server_applies_the_weightings_to_updates_and_statistics(weighting, of_statistics, expected, servers):
    samples, weights = [10, 640, 64], floats(1, 7)
    weightings = {"weighting": weighting, "statistics_weighting": of_statistics}
    cluster = MemoryServers(
        3, weights, floats(2, 4), servers=servers, bucket_elements=3, rule=add_mean_update, **weightings
    )
    updates, stats = [floats(10 + rank, 7) for rank in range(3)], [floats(20 + rank, 4) for rank in range(3)]
    for rank in (2, 0, 1):
        cluster.send(rank, 1, updates[rank], stats[rank], learning_rate=0.5, samples=samples[rank])
    step = np.float32(0.5) * mean(weighting, updates, samples)
    np.testing.assert_allclose(cluster.weights(), weights + step, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cluster.statistics(), mean(expected, stats, samples), rtol=1e-5, atol=1e-6)


def test_statistics_weighting_with_unknown_name_is_refused():
    specification = Specification("add_mean_update", True, statistics_weighting="normalized")
    with pytest.raises(ValueError, match="statistics weighting is 'normalized', but should be one of as-updates, uni"):
        specification.weightings()


def test_outer_nesterov_leaves_statistics_alone():
    cluster = MemoryServers(2, [0.0], [9.0], rule=outer_nesterov)
    for sequence in (1, 2):
        for rank in range(2):
            stats = np.float32([2 * sequence + rank])
            cluster.send(rank, sequence, np.float32([1.0]), stats, momentum=0.5, learning_rate=1.0)
    assert cluster.weights().tolist() == [1.5 + 1 + 0.5 * 1.5]
    assert cluster.statistics().tolist() == [4.5]
