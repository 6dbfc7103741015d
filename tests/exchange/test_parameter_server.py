"""Synchronous rounds, driven push by push, and the end of a run.

Nonces are 1000 + rank unless a test gives others.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange.protocol import wire
from esync.exchange.protocol.layout import STATISTICS, WEIGHTS
from esync.exchange.protocol.round_state import Limits

from ..support.memory_servers import MemoryServers, floats, interleaved, mean_in_rank_order


@st.composite
def rounds_of_payloads(draw):
    """Draw (servers, list of rounds).

    A round is (payloads by rank, statistics by rank, all pushes in some order).
    """
    workers, servers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    size, statistics = draw(st.integers(1, 9)), draw(st.integers(0, 5))
    seed = draw(st.integers(0, 2**20))
    cluster = MemoryServers(
        workers, floats(seed, size), floats(seed + 1, statistics), servers=servers, bucket_elements=3
    )
    rounds = []
    for sequence in range(1, 3):
        values = [floats(seed + 100 * sequence + rank, size) for rank in range(workers)]
        stats = [floats(seed + 100 * sequence + 50 + rank, statistics) for rank in range(workers)]
        streams = [
            cluster.payload(rank, sequence, values[rank], stats[rank], learning_rate=0.1) for rank in range(workers)
        ]
        rounds.append((values, stats, interleaved(draw, streams)))
    return cluster, rounds


@given(rounds_of_payloads())
@settings(max_examples=40)
def test_round_mean_is_in_rank_order_whatever_the_order_of_arrival(drawn):
    """Nothing changes before the last commit is complete."""
    cluster, rounds = drawn
    held = {WEIGHTS: cluster.weights(), STATISTICS: cluster.statistics()}
    for number, (values, stats, pushes) in enumerate(rounds, start=1):
        cluster.deliver(*pushes[:-1])
        last = pushes[-1].shard
        for bucket in cluster.layout.buckets:  # the other servers have all that they need
            part = slice(bucket.start, bucket.stop)
            same = np.array_equal(cluster.vector(bucket.vector)[part], held[bucket.vector][part])
            assert same or bucket.shard != last
        assert cluster.status(last)["round"] == number - 1
        assert (cluster.status(last)["acknowledged"] == number - 1).all()
        cluster.deliver(pushes[-1])
        weights = held[WEIGHTS] - np.float32(0.1) * mean_in_rank_order(values)
        held = {WEIGHTS: weights, STATISTICS: mean_in_rank_order(stats)}
        for name, vector in held.items():
            assert cluster.vector(name).tobytes() == vector.tobytes()
        for shard, memory in enumerate(cluster.memories):
            assert cluster.status(shard)["round"] == number
            assert memory.staged_bytes == 0
            mine = sum(bucket.stop - bucket.start for bucket in cluster.layout.buckets if bucket.shard == shard)
            assert memory.peak_bytes <= cluster.workers * 4 * mine  # one model for each worker


def test_round_uses_momentum_and_weight_decay_of_the_commits():
    cluster = MemoryServers(1, [1.0])
    cluster.send(0, 1, [1], learning_rate=0.5, momentum=0.5, weight_decay=1.0)
    # v = −0.5·(1 + 1·1) = −1; w = 0
    assert cluster.weights().tolist() == [0.0]
    cluster.send(0, 2, [1], learning_rate=0.25, momentum=0.5, weight_decay=1.0)
    # v = 0.5·(−1) − 0.25·(1 + 1·0) = −0.75
    assert cluster.weights().tolist() == [-0.75]


def test_round_scales_weight_decay_by_the_mean_batch_size():
    """Sums over batches of 8 and 4 samples.

    The step is −l·(mean of sums + mean batch size · decay · weight).
    """
    cluster = MemoryServers(2, [1.0])
    for rank, batch in ((0, 8), (1, 4)):
        cluster.send(rank, 1, [batch], learning_rate=0.5, weight_decay=0.25, gradient_scale=batch)
    assert cluster.weights().tolist() == [1 - 0.5 * (6 + 6 * 0.25)]


def test_wait_is_measured_by_the_servers_clock_from_when_the_whole_payload_is_there():
    cluster = MemoryServers(3, np.zeros(8))
    first, second, commit = cluster.payload(0, 1, np.ones(8, np.float32))
    cluster.clock.now = 10.0
    cluster.deliver(commit, second)
    cluster.clock.now = 15.0
    cluster.deliver(first)
    for rank, now in ((2, 16.0), (1, 22.0)):
        cluster.clock.now = now
        cluster.send(rank, 1, np.ones(8))
    assert cluster.status()["wait"].tolist() == [7.0, 0.0, 6.0]


def test_duplicate_commit_is_ignored():
    cluster = MemoryServers(2, [0.0])
    one = np.float32([1])
    cluster.send(0, 1, one)
    cluster.deliver(*cluster.commits(0, 1, vectors=[WEIGHTS]))
    assert cluster.status()["round"] == 0
    cluster.send(1, 1, one)
    cluster.deliver(*cluster.commits(0, 1, vectors=[WEIGHTS]), *cluster.commits(1, 1, vectors=[WEIGHTS]))
    status = cluster.status()
    assert [int(status[name]) for name in ("round", "version", "samples")] == [1, 2, 2]
    assert cluster.weights().tolist() == [-1.0]
    for rank in (0, 1):
        cluster.send(rank, 2, one)
    assert cluster.weights().tolist() == [-2.0]


@pytest.mark.parametrize(("synchronous", "used"), [(True, [wire.TOGETHER] * 2), (False, [wire.AT_ONCE, 0])])
def test_stop_ends_a_run_after_the_current_round_or_at_once(synchronous, used):
    cluster = MemoryServers(2, [0.0], synchronous=synchronous)
    cluster.send(0, 1, [1])
    cluster.say(wire.STOP, 0)
    assert [int(cluster.status()[name]) for name in ("round", "stop_at")] == [0, int(synchronous)]
    cluster.send(1, 1, [1])
    status = cluster.status()
    assert [int(status[name]) for name in ("round", "stop_at")] == [int(synchronous)] * 2
    assert (status["acknowledged"].tolist(), status["used"].tolist()) == ([1, 1], used)
    assert cluster.weights().tolist() == [-1.0]


@pytest.mark.parametrize("synchronous", [True, False])
@pytest.mark.parametrize("limits", [Limits(rounds=2), Limits(samples=40), Limits(seconds=20.0)])
def test_limits_end_the_run_and_later_commits_change_nothing(synchronous, limits):
    cluster = MemoryServers(2, [0.0], synchronous=synchronous, limits=limits)
    for sequence in (1, 2):
        status = cluster.status()
        assert not 0 <= status["stop_at"] <= status["round"]
        cluster.clock.now += 10.0
        for rank in (0, 1):
            cluster.send(rank, sequence, [1], samples=10)
    ended = cluster.status()
    assert 0 <= ended["stop_at"] <= ended["round"]
    weights = cluster.weights().tolist()

    for rank in (0, 1):  # both are answered, so that they can leave, but their payloads are not used
        cluster.send(rank, 3, [1], samples=10)
    status = cluster.status()
    assert status["acknowledged"].tolist() == [3, 3]
    assert status["used"].tolist() == [0, 0]
    assert [int(status[name]) for name in ("round", "version", "samples")] == [
        int(ended[name]) for name in ("round", "version", "samples")
    ]
    assert cluster.weights().tolist() == weights
    assert cluster.memories[0].staged_bytes == 0
