"""A server's round state: limits, and how a run ends."""

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import Limits, RoundState
from esync.exchange.protocol.status import status_record

from .round_states import commit, make


def test_seconds_limit_counts_from_when_all_have_joined():
    round_state = RoundState(2, True, Limits(seconds=10.0))
    round_state.join(0, 1, now=100.0)
    round_state.join(1, 1, now=200.0)
    for sequence, now, over in ((1, 209.9, False), (2, 210.0, True)):
        commit(round_state, 0, now, sequence)
        commit(round_state, 1, now, sequence)
        assert round_state.finished is over
    assert status_record(round_state)["elapsed"] == 10.0


def test_seconds_limit_is_not_reset_by_a_replacement():
    round_state = make(2, seconds=10.0)
    round_state.join(1, 77, now=8.0)
    commit(round_state, 0, 11.0)
    commit(round_state, 1, 11.0)
    assert round_state.finished


def test_stop_is_never_later_than_the_limit_or_an_earlier_stop():
    round_state = make(1, rounds=1)
    round_state.stop()
    assert round_state.stop_at == 1
    round_state = make(1, rounds=5)
    round_state.stop()
    round_state.stop()
    assert round_state.stop_at == 1


@pytest.mark.parametrize("limits", [Limits(rounds=1), Limits(samples=2)])
def test_server_that_does_not_decide_uses_commits_the_deciding_one_may_use(limits):
    round_state = RoundState(2, False, limits, decides=False)
    for rank in range(2):
        round_state.join(rank, 10 + rank, now=0.0)
    for sequence in (1, 2, 3):  # two of them may be on their way to server 0
        assert commit(round_state, 0, 1.0, sequence) == [0]
    assert commit(round_state, 1, 2.0) == [1]
    assert status_record(round_state)["used"].tolist() == [wire.AT_ONCE] * 2
    assert round_state.version == 4
    round_state.abort("enough")
    assert commit(round_state, 1, 3.0, sequence=2) == []


def test_synchronous_round_pending_at_the_end_is_not_used():
    round_state = make(2, synchronous=False, samples=2)
    commit(round_state, 0, use=wire.AT_ONCE, switch=wire.TOGETHER)
    commit(round_state, 0, sequence=2, use=wire.TOGETHER)
    assert not round_state.finished
    commit(round_state, 1, use=wire.AT_ONCE)  # it had not heard of the switch yet
    assert round_state.finished
    status = status_record(round_state)
    assert (status["acknowledged"].tolist(), status["used"].tolist()) == ([2, 1], [0, wire.AT_ONCE])
    round_state.leave(1)
    assert round_state.due() == []
    assert (round_state.version, round_state.samples) == (2, 2)


def test_abort_without_reason_ends_the_run():
    round_state = make()
    round_state.abort("")
    assert round_state.finished
    assert status_record(round_state)["aborted"] == 1
    assert status_record(round_state)["text"].item()
