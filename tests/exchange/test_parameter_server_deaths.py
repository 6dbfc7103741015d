"""Workers that die, leave or fail, driven push by push.

Nonces are 1000 + rank unless a test gives others.
"""

import numpy as np
import pytest

from esync.exchange.protocol import wire

from ..support.memory_servers import MemoryServers, floats, mean_in_rank_order


def test_worker_that_dies_before_its_commit_contributes_nothing():
    """Its replacement's payload takes the place of the pieces that have arrived."""
    cluster = MemoryServers(2, np.zeros(9), [5.0], bucket_elements=3)
    right, wrong = floats(1, 9), floats(2, 9)
    cluster.send(0, 1, right, [1])
    cluster.deliver(*cluster.buckets(1, 1, wrong, np.float32([99]))[:3])
    assert np.array_equal(cluster.weights(), np.zeros(9))

    cluster.join(1, nonce=7)
    status = cluster.status()
    assert status["arrivals"].tolist() == [1, 2]
    assert status["acknowledged"].tolist() == [0, 0]
    cluster.send(1, 1, right, [3], nonce=7)
    assert np.array_equal(cluster.weights(), -mean_in_rank_order([right, right]))
    assert cluster.statistics().tolist() == [2.0]
    assert cluster.memories[0].staged_bytes == 0


def test_worker_that_dies_between_commit_and_buckets_contributes_nothing():
    cluster = MemoryServers(2, np.zeros(8))
    dead, alive = floats(1, 8), floats(2, 8)
    first, second, commit = cluster.payload(0, 1, dead)
    cluster.deliver(commit, first)
    cluster.join(0, nonce=7)
    cluster.deliver(second)  # was still on its way: the commit is not complete, for its worker is dead
    cluster.send(1, 1, alive)
    assert cluster.status()["round"] == 0
    cluster.send(0, 1, alive, nonce=7)
    assert np.array_equal(cluster.weights(), -mean_in_rank_order([alive, alive]))


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("early", [True, False])
def test_worker_that_dies_after_its_commit_contributes_once(dead, early):
    """Nobody waits for the replacement, whose payload for the same round is not used."""
    cluster = MemoryServers(2, np.zeros(8))
    alive = 1 - dead
    values = [floats(1, 8), floats(2, 8)]
    cluster.send(dead, 1, values[dead], samples=10)
    cluster.join(dead, nonce=7)
    surplus = cluster.payload(dead, 1, floats(3, 8), nonce=7, samples=10)
    if early:
        cluster.deliver(*surplus)
    assert cluster.status()["round"] == 0
    cluster.send(alive, 1, values[alive], samples=10)
    if not early:
        cluster.deliver(*surplus)
    status = cluster.status()
    assert [int(status[name]) for name in ("round", "version", "samples")] == [1, 2, 20]
    assert status["acknowledged"].tolist() == [1, 1]
    assert np.array_equal(cluster.weights(), -mean_in_rank_order(values))

    before = cluster.weights()
    cluster.send(dead, 2, values[0], nonce=7)
    cluster.send(alive, 2, values[0])
    assert cluster.status()["round"] == 2
    assert np.array_equal(cluster.weights(), before - mean_in_rank_order([values[0], values[0]]))
    assert cluster.memories[0].staged_bytes == 0


@pytest.mark.parametrize("kind", [wire.COMMIT, wire.LEAVE, wire.STOP, wire.ABORT])
def test_worker_that_lost_its_slot_is_ignored(kind):
    cluster = MemoryServers(2, [0.0])
    cluster.join(0, nonce=7)
    cluster.say(kind, 0, nonce=1000, sequence=1, text="I am still here")
    cluster.send(1, 1, [1])
    status = cluster.status()
    assert (int(status["round"]), int(status["stop_at"]), int(status["aborted"])) == (0, -1, 0)
    assert status["member"].tolist() == [1, 1]


def test_late_buckets_of_dead_worker_leave_those_of_its_replacement_alone():
    cluster = MemoryServers(1, np.zeros(8))
    right, wrong = floats(1, 8), floats(2, 8)
    late = cluster.buckets(0, 1, wrong, nonce=1000)
    cluster.join(0, nonce=7)
    first, *tail = cluster.payload(0, 1, right, nonce=7)
    cluster.deliver(first, *late, *tail)
    assert np.array_equal(cluster.weights(), -right)


def test_worker_that_leaves_is_not_waited_for():
    cluster = MemoryServers(3, [0.0])
    cluster.send(0, 1, [1])
    cluster.send(2, 1, [2])
    cluster.say(wire.LEAVE, 1)
    assert cluster.weights().tolist() == [-1.5]
    assert cluster.status()["round"] == 1
    cluster.send(2, 2, [4])
    cluster.send(0, 2, [1])
    assert cluster.weights().tolist() == [-4.0]
    assert cluster.memories[0].staged_bytes == 0


def test_abort_is_seen_by_all_and_the_first_reason_stays():
    cluster = MemoryServers(2, [0.0], servers=2)
    cluster.say(wire.ABORT, 1, text="worker 1: the loss is NaN")
    cluster.say(wire.ABORT, 0, text="worker 0: gave up")
    for rank in (0, 1):
        cluster.send(rank, 1, [1])
    for shard in (0, 1):
        status = cluster.status(shard)
        assert int(status["aborted"]) == 1
        assert status["text"].decode() == "worker 1: the loss is NaN"
    assert cluster.weights().tolist() == [0.0]
