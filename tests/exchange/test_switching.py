"""Switching between synchronous and asynchronous during a job, push by push, on two servers."""

from typing import Any

import numpy as np
import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.layout import WEIGHTS
from esync.exchange.protocol.resume_negotiation import RunProgress
from esync.exchange.protocol.round_state import Limits, RoundState
from esync.rules import RESET_MOMENTUM, Step, momentum_sgd

from ..support.memory_servers import MemoryServers


def commit(cluster: MemoryServers, rank: int, sequence: int, use: int, **terms: Any) -> None:
    """Send a payload of ones that is to be used like this."""
    cluster.send(rank, sequence, np.ones(cluster.layout.sizes[WEIGHTS]), use=use, **terms)


def test_switching_keeps_weights_and_momentum():
    cluster = MemoryServers(2, np.array([1.0, -2.0]), rule=momentum_sgd)
    gradient = np.array([0.5, 0.25], np.float32)
    weights, gathered = momentum_sgd(np.array([1, -2], np.float32), gradient, None, Step(0.2, momentum=0.9))
    for rank in (1, 0):
        switch = wire.AT_ONCE if rank == 0 else wire.AS_AGREED
        cluster.send(rank, 1, gradient, learning_rate=0.2, momentum=0.9, use=wire.TOGETHER, switch=switch)
    assert not cluster.status()["synchronous"]
    assert cluster.weights().tobytes() == weights.tobytes()
    assert cluster.nodes[0].server.model.buckets[0].rule_state.tobytes() == gathered.tobytes()
    weights, gathered = momentum_sgd(weights, gradient, gathered, Step(0.1, momentum=0.9))
    cluster.send(1, 2, gradient, learning_rate=0.1, momentum=0.9, use=wire.AT_ONCE)
    assert cluster.weights().tobytes() == weights.tobytes()
    assert cluster.nodes[0].server.model.buckets[0].rule_state.tobytes() == gathered.tobytes()


def test_switch_that_resets_momentum_forgets_what_was_gathered():
    """Two workers, two servers; only the leader's commit asks for it."""
    cluster = MemoryServers(
        2, np.zeros(2), servers=2, bucket_elements=1, rule=momentum_sgd, scalars={RESET_MOMENTUM: "maximum"}
    )
    terms = {"learning_rate": 1.0, "momentum": 0.5}

    def rounds(sequence: int, **leaders: float) -> None:
        cluster.send(
            1, sequence, [1.0, 2.0], use=wire.TOGETHER, **terms, **({RESET_MOMENTUM: np.nan} if leaders else {})
        )
        cluster.send(0, sequence, [1.0, 2.0], use=wire.TOGETHER, **terms, **leaders)

    rounds(1)
    rounds(2, switch=wire.AT_ONCE, **{RESET_MOMENTUM: 1.0})
    assert not cluster.status()["synchronous"]
    assert cluster.weights().tolist() == [-1 - 1.5, -2 - 3.0]  # the last synchronous step still has its momentum
    cluster.send(0, 3, [1.0, 2.0], use=wire.AT_ONCE, **terms)
    assert cluster.weights().tolist() == [-2.5 - 1, -5.0 - 2]  # with it, 1.75 and 3.5
    cluster.send(1, 3, [1.0, 2.0], use=wire.AT_ONCE, **terms)
    assert cluster.weights().tolist() == [-3.5 - 1.5, -7.0 - 3]  # and from now on it gathers again


@pytest.mark.parametrize("asking", [0, 1])
def test_switch_request_of_the_leader_alone_takes_effect_at_the_end_of_the_round(asking):
    cluster = MemoryServers(2, np.zeros(2))
    for rank in (0, 1):
        assert cluster.status()["synchronous"]
        commit(cluster, rank, 1, wire.TOGETHER, switch=wire.AT_ONCE * (rank == asking))
    assert bool(cluster.status()["synchronous"]) == (asking == 1)


def test_switching_counts_rounds_and_steps_of_both_kinds():
    cluster = MemoryServers(2, np.zeros(2), limits=Limits(samples=9))
    for rank in (0, 1):
        commit(cluster, rank, 1, wire.TOGETHER, samples=2, switch=wire.AT_ONCE * (rank == 0))
    for sequence in (2, 3, 4):
        commit(cluster, 0, sequence, wire.AT_ONCE, samples=1)
    status = cluster.status()
    assert (status["round"], status["step"], status["version"]) == (2, 4, 5)
    assert (status["samples"], status["samples_together"]) == (7, 4)
    assert status["stop_at"] == -1
    commit(cluster, 1, 2, wire.AT_ONCE, samples=2)
    assert cluster.status()["stop_at"] == cluster.status()["round"] == 3


def test_switching_state_survives_resume():
    round_state = RoundState(2, True)
    round_state.resume(RunProgress(5, 11, 100, 1.0, step=9, synchronous=False, samples_together=60), 10.0)
    assert (round_state.round, round_state.step, round_state.synchronous) == (5, 9, False)
    assert (round_state.samples, round_state.samples_together) == (100, 60)
    round_state.join(1, 7, 10.0)
    assert round_state.commit(wire.message(wire.COMMIT, rank=1, sequence=1), 11.0) == [1]
    round_state.applied([1], 11.0)
    assert (round_state.round, round_state.step, round_state.version) == (6, 10, 12)


def test_exclusion_takes_effect_at_the_end_of_the_leaders_round():
    cluster = MemoryServers(3, np.zeros(4), servers=2)
    for rank in (1, 2, 0):
        excluded = wire.encode_ranks([1]) if rank == 0 else b""
        assert not cluster.status()["excluded"].any()
        commit(cluster, rank, 1, wire.TOGETHER, text=excluded)
    for shard in range(2):
        assert cluster.status(shard)["excluded"].tolist() == [0, 1, 0]
        assert cluster.status(shard)["member"].tolist() == [1, 1, 1]
    cluster.send(2, 2, np.full(4, 2.0), use=wire.TOGETHER)
    # Acknowledged at once, and not used; its rate is its own.
    cluster.send(1, 2, np.full(4, 100.0), use=wire.DISCARD, learning_rate=0.5)
    status = cluster.status(1)
    assert (status["acknowledged"][1], status["used"][1], status["version"]) == (2, 0, 3)
    cluster.send(0, 2, np.full(4, 2.0), use=wire.TOGETHER)
    assert (cluster.weights() == -(1.0 + 2.0)).all()  # the mean of two
    assert cluster.status()["round"] == 2
    assert cluster.status()["samples"] == 3 + 2


def test_excluded_worker_that_is_included_again_is_waited_for():
    cluster = MemoryServers(2, np.zeros(2))
    for rank, text in ((0, b"1"), (1, b"")):
        commit(cluster, rank, 1, wire.TOGETHER, text=text)
    commit(cluster, 0, 2, wire.TOGETHER, text=wire.encode_ranks(()))
    assert not cluster.status()["excluded"].any()
    commit(cluster, 0, 3, wire.TOGETHER)
    assert cluster.status()["round"] == 2
    commit(cluster, 1, 2, wire.TOGETHER)
    assert cluster.status()["round"] == 3


def test_switch_by_any_leader_ends_all_exclusions():
    cluster = MemoryServers(3, np.zeros(2))
    for rank in range(3):
        commit(cluster, rank, 1, wire.TOGETHER, text=b"0" * (rank == 0))
    assert cluster.status()["excluded"].tolist() == [1, 0, 0]
    commit(cluster, 0, 2, wire.DISCARD, switch=wire.AT_ONCE, text=b"1,2")  # it does not lead any more
    for rank in (2, 1):
        commit(cluster, rank, 2, wire.TOGETHER, switch=wire.AT_ONCE * (rank == 1))
    assert not cluster.status()["synchronous"]
    assert not cluster.status()["excluded"].any()
    commit(cluster, 0, 3, wire.AT_ONCE)
    assert cluster.status()["used"][0]


def test_synchronous_commits_wait_for_missing_workers_on_every_server():
    """A hanging worker is then noticed even by a server that has not seen the commit with the
    switch.
    """
    round_state = RoundState(2, False)
    for rank in range(2):
        round_state.join(rank, 7 + rank, 0.0)
    assert not round_state.waits_for(1)
    round_state.commit(wire.message(wire.COMMIT, rank=0, sequence=1, use=wire.TOGETHER), 1.0)
    assert round_state.waits_for(1)
    assert not round_state.waits_for(0)


def test_exclusion_of_everyone_is_ignored():
    cluster = MemoryServers(2, np.zeros(2))
    for rank in (0, 1):
        commit(cluster, rank, 1, wire.TOGETHER, text=b"0,1")
    assert not cluster.status()["excluded"].any()


@pytest.mark.parametrize("ranks", [None, (), (3,), (0, 17, 4), range(1000)])
def test_encoded_ranks_decode_to_the_same_set(ranks):
    text = wire.unpack(
        wire.pack(wire.message(wire.COMMIT, text=wire.encode_ranks(ranks)), wire.message_elements(4)), wire.MESSAGE
    )["text"]
    read = wire.decode_ranks(bytes(text))
    assert read is None if ranks is None else read <= set(ranks) and len(read) >= min(len(ranks), 100)
