"""Batch norm statistics of asynchronous workers.

The servers publish the mean of the latest ones.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import Limits
from esync.exchange.weighting import LatestValues

from ..support.memory_servers import MemoryServers, floats

NOTHING = np.zeros(3, np.float32)
BEGUN = np.float32([7, 8])


def at_once(workers: int, **options) -> MemoryServers:
    return MemoryServers(workers, NOTHING, BEGUN, synchronous=False, **options)


def mean(*statistics: np.ndarray) -> list[float]:
    return np.mean(statistics, axis=0, dtype=np.float64).astype(np.float32).tolist()


@pytest.mark.parametrize("private", [False, True])
@given(st.integers(1, 3), st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(0, 99))
@settings(max_examples=25)
def test_published_statistics_are_the_mean_of_each_workers_latest(private, servers, order, seed):
    cluster = at_once(3, servers=servers, bucket_elements=2, private=private)
    latest = dict.fromkeys(range(3), BEGUN)
    for number, rank in enumerate(order, start=1):
        latest[rank] = floats(seed + number, 2)
        cluster.send(rank, order[:number].count(rank), NOTHING, latest[rank])
        expected = mean(*latest.values())
        assert cluster.statistics().tolist() == expected
    assert all(memory.staged_bytes == 0 for memory in cluster.memories)


@pytest.mark.parametrize("weighting", ["samples", "normalized"])
@pytest.mark.parametrize("synchronous", [False, True])
def test_published_statistics_of_frozen_layers_stay_bit_for_bit(synchronous, weighting):
    """A weighting by samples would round them; other statistics change beside them."""
    frozen = np.float32([*floats(3, 20), -np.inf, 0.0])
    cluster = MemoryServers(3, NOTHING, [*frozen, 1.0], synchronous=synchronous, weighting=weighting)
    for sequence in range(1, 12):
        for rank, samples in enumerate((60, 61, 113)):
            cluster.send(rank, sequence, NOTHING, [*frozen, sequence], samples=samples)
        assert cluster.statistics()[:-1].tobytes() == frozen.tobytes()
        assert cluster.statistics()[-1] == pytest.approx(sequence)


def test_latest_values_drop_gone_workers_and_count_replacements_from_first_commit():
    cluster = at_once(3)
    values = [floats(rank, 2) for rank in range(3)]
    for rank in range(3):
        cluster.send(rank, 1, NOTHING, values[rank])
    cluster.join(1, nonce=7)
    assert cluster.statistics().tolist() == mean(*values)  # what the replacement begins with
    cluster.send(0, 2, NOTHING, values[0])
    assert cluster.statistics().tolist() == mean(values[0], values[2])
    new = floats(9, 2)
    cluster.send(1, 2, NOTHING, new, nonce=7)
    assert cluster.statistics().tolist() == mean(values[0], new, values[2])
    cluster.say(wire.LEAVE, 2)
    cluster.send(0, 3, NOTHING, values[0])
    assert cluster.statistics().tolist() == mean(values[0], new)
    cluster.drop(1)
    cluster.send(0, 4, NOTHING, values[0])
    assert cluster.statistics().tolist() == values[0].tolist()


@pytest.mark.parametrize("limits", [Limits(), Limits(rounds=1)])  # server 1 may not know that the run is over
def test_latest_values_at_the_end_still_count_workers_that_finished_first(limits):
    cluster = at_once(2, servers=2, limits=limits)
    values = floats(1, 2)
    cluster.send(1, 1, NOTHING, values)
    cluster.say(wire.DONE, 1)
    cluster.send(0, 1, NOTHING, 3 * values)
    assert cluster.statistics().tolist() == mean(values, 3 * values)


def test_latest_values_after_a_synchronous_round_are_its_mean():
    cluster = at_once(2)
    low, high = np.float32([1, 2]), np.float32([3, 6])
    cluster.send(0, 1, NOTHING, 100 * high)
    cluster.send(0, 2, NOTHING, low, use=wire.TOGETHER)
    cluster.send(1, 1, NOTHING, high, use=wire.TOGETHER)
    assert cluster.statistics().tolist() == [2, 4]
    cluster.send(1, 2, NOTHING, high, use=wire.AT_ONCE)
    assert cluster.statistics().tolist() == [2.5, 5]  # worker 0 has the mean of the round


def test_latest_values_mean_can_be_weighted_by_samples():
    latest = LatestValues(BEGUN, np.ones(2, bool), "samples")
    latest.put(0, np.float32([1, 2]), 30)
    latest.put(1, np.float32([5, 10]), 10)
    assert latest.mean().tolist() == [2, 4]
