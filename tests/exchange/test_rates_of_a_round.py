"""The commits of a synchronous round must have one learning rate, momentum and weight decay."""

import numpy as np
import pytest

from esync.exchange.protocol import wire

from ..support.memory_servers import MemoryServers
from .round_states import commit, make

RATES = {"learning_rate": 0.001, "momentum": 0.0, "weight_decay": 0.0}


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"learning_rate": 0.5}, "learning rate 0.5, but worker 0 0.001"),
        ({"momentum": 0.9}, "momentum 0.9, but worker 0 0.0"),
        ({"weight_decay": 0.25}, "weight decay 0.25, but worker 0 0.0"),
    ],
)
def test_round_with_different_rates_ends_the_run_and_leaves_weights_alone(theirs, message):
    cluster = MemoryServers(3, np.zeros(8), servers=2)
    cluster.send(0, 1, np.ones(8), **RATES)
    cluster.send(1, 1, np.ones(8), **{**RATES, **theirs})
    for shard in range(2):
        status = cluster.status(shard)
        assert status["aborted"]
        assert message in bytes(status["text"]).decode()
        assert "worker 1 committed" in bytes(status["text"]).decode()
    cluster.send(2, 1, np.ones(8), **RATES)
    assert cluster.weights().tolist() == [0.0] * 8
    assert cluster.status()["round"] == 0


def test_round_with_different_rates_names_all_of_them_in_one_message():
    round_state = make(2)
    commit(round_state, 1)
    commit(round_state, 0, learning_rate=0.1 + 0.2, momentum=0.123456789012345, weight_decay=1e-17 / 3 + 0.1)
    assert "learning rate 0.30000000000000004, but worker 1 0.0; momentum" in round_state.failure
    assert "weight decay" in round_state.failure
    assert len(round_state.failure.encode()) <= wire.TEXT_BYTES


def test_round_with_rates_equal_up_to_rounding_is_accepted():
    round_state = make(2)
    commit(round_state, 0, learning_rate=0.1)
    assert commit(round_state, 1, learning_rate=0.1 * (1 + 1e-15)) == [0, 1]
    commit(round_state, 0, sequence=2, learning_rate=1e-18)  # the end of a cosine
    assert commit(round_state, 1, sequence=2, learning_rate=0.0) == [0, 1]


def test_rates_are_compared_from_the_second_round_after_a_switch():
    """Asynchronous workers learn of the switch at different samples, between which a schedule may
    step.
    """
    round_state = make(2, synchronous=False)
    commit(round_state, 0, use=wire.AT_ONCE, switch=wire.TOGETHER)
    commit(round_state, 1, use=wire.AT_ONCE)
    commit(round_state, 0, sequence=2, use=wire.TOGETHER, learning_rate=0.1)
    assert commit(round_state, 1, sequence=2, use=wire.TOGETHER, learning_rate=0.01) == [0, 1]
    commit(round_state, 0, sequence=3, use=wire.TOGETHER, learning_rate=0.01)
    assert commit(round_state, 1, sequence=3, use=wire.TOGETHER, learning_rate=0.1) == []
    assert "to round 3" in round_state.failure


def test_commit_of_excluded_worker_is_not_used():
    """It may be rounds behind: neither its gradient nor its rate belongs to the current round."""
    cluster = MemoryServers(3, [0.0])
    for rank in (1, 2):
        cluster.send(rank, 1, [1], **RATES)
    cluster.drop(0)
    after_one = cluster.weights().tolist()
    cluster.send(1, 2, [1], **{**RATES, "learning_rate": 0.5})
    cluster.send(0, 1, [100], **RATES)  # wakes up
    status = cluster.status()
    assert (status["aborted"], status["acknowledged"][0], status["used"][0]) == (0, 1, 0)
    cluster.send(2, 2, [1], **{**RATES, "learning_rate": 0.5})
    assert cluster.weights().tolist() == [pytest.approx(after_one[0] - 0.5)]
    assert not any(memory.staged_bytes for memory in cluster.memories)
