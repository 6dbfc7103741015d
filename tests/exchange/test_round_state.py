"""A server's round state: members, rounds, commits and who waits for whom."""

import math

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import RoundState

from .round_states import commit, make


def test_round_waits_for_every_member():
    round_state = make(3)
    assert commit(round_state, 2, now=1.0) == []
    assert commit(round_state, 0, now=2.5) == []
    assert (round_state.round, round_state.version, round_state.samples) == (0, 0, 0)
    assert commit(round_state, 1, now=4.0) == [0, 1, 2]
    assert (round_state.round, round_state.version, round_state.samples) == (1, 3, 3)


def test_round_waits_run_from_each_commit_to_the_last():
    round_state = make(3)
    for rank, now in ((2, 1.0), (0, 2.5), (1, 4.0)):
        commit(round_state, rank, now)
    assert round_state.status()["wait"].tolist() == [1.5, 0.0, 3.0]


def test_asynchronous_commit_counts_at_once():
    round_state = make(3, synchronous=False)
    for sequence, (rank, version, round_) in enumerate([(2, 1, 0), (2, 2, 0), (0, 3, 1), (1, 4, 1)], start=1):
        assert commit(round_state, rank, now=1.0, sequence=sequence) == [rank]
        assert (round_state.version, round_state.round) == (version, round_)
    assert round_state.status()["wait"].tolist() == [0.0, 0.0, 0.0]


def test_commit_is_acknowledged_by_its_sequence_number():
    round_state = make()
    commit(round_state, 0, 1.0, sequence=7)
    assert round_state.status()["acknowledged"].tolist() == [0, 0]
    assert round_state.status()["committed"].tolist() == [1, 0]
    commit(round_state, 1, 1.0, sequence=9)
    status = round_state.status()
    assert status["acknowledged"].tolist() == [7, 9]
    assert status["used"].tolist() == [1, 1]
    assert status["committed"].tolist() == [0, 0]


def test_member_that_leaves_is_not_waited_for():
    round_state = make(3)
    commit(round_state, 0, 1.0)
    commit(round_state, 2, 1.5)
    round_state.leave(1)
    assert round_state.due() == [0, 2]
    assert round_state.status()["member"].tolist() == [1, 0, 1]


def test_member_that_leaves_after_its_commit_contributes():
    round_state = make(3)
    commit(round_state, 1, 1.0)
    round_state.leave(1)
    commit(round_state, 0, 2.0)
    assert commit(round_state, 2, 3.0) == [0, 1, 2]


def test_round_state_can_exit_when_all_who_joined_have_left():
    round_state = RoundState(3, True)
    assert not round_state.can_exit
    round_state.join(0, 1, 0.0)
    round_state.join(2, 1, 0.0)
    round_state.leave(0)
    assert not round_state.can_exit
    round_state.leave(2)
    assert round_state.can_exit


def test_round_state_can_no_longer_exit_after_a_join():
    round_state = make(1)
    round_state.leave(0)
    round_state.join(0, 99, 1.0)
    assert not round_state.can_exit
    assert round_state.status()["member"].tolist() == [1]


def test_arrivals_count_processes_not_joins():
    round_state = RoundState(2, True)
    for nonce in (5, 5, 6):
        round_state.join(1, nonce, 0.0)
    status = round_state.status()
    assert status["arrivals"].tolist() == [0, 2]
    assert status["nonce"].tolist() == [0, 6]


def test_replacement_commits_for_the_dead_worker():
    round_state = make(2)
    commit(round_state, 0, 1.0)
    round_state.join(1, 99, now=5.0)
    assert commit(round_state, 1, 6.0) == [0, 1]
    assert round_state.status()["wait"].tolist() == [5.0, 0.0]


def test_count_of_local_iterations_advances_round_and_samples():
    round_state = make(1, samples=50)
    round_state.count(20, 1.0)
    round_state.count(20, 2.0)
    assert (round_state.round, round_state.samples, round_state.finished) == (2, 40, False)
    round_state.count(20, 3.0)
    assert (round_state.round, round_state.samples, round_state.finished) == (3, 60, True)


def test_dropped_member_is_not_waited_for_until_a_replacement_joins():
    round_state = make(3)
    commit(round_state, 0, now=1.0)
    commit(round_state, 2, now=2.0)
    round_state.drop(1)
    assert round_state.due() == [0, 2]
    round_state.applied([0, 2], now=3.0)
    assert round_state.round == 1
    assert round_state.status()["member"].tolist() == [1, 0, 1]
    commit(round_state, 0, now=4.0, sequence=2)
    assert commit(round_state, 2, now=5.0, sequence=2) == [0, 2]
    round_state.join(1, 99, now=6.0)  # a replacement in its slot
    assert round_state.status()["elapsed"] == 6.0
    assert round_state.status()["exchanged_at"] == 5.0  # what a schedule counts by: all workers know it
    commit(round_state, 0, now=7.0, sequence=3)
    assert commit(round_state, 2, now=7.0, sequence=3) == []
    assert commit(round_state, 1, now=8.0) == [0, 1, 2]


def test_dropped_member_is_waited_for_at_the_end_only_if_awaited():
    round_state = make(2)
    round_state.drop(1)
    round_state.awaited.add(1)
    assert not round_state.can_exit
    round_state.leave(0)
    assert round_state.over
    assert not round_state.can_exit
    round_state.awaited.discard(1)
    assert round_state.can_exit


def test_dropped_member_that_leaves_does_not_end_the_run():
    round_state = make(2)
    for rank in range(2):
        round_state.drop(rank)
    round_state.leave(0)
    assert not round_state.can_exit
    round_state.join(1, 99, now=1.0)
    round_state.leave(1)
    assert round_state.can_exit


def test_member_dropped_after_the_others_left_is_waited_for():
    round_state = make(2)
    round_state.leave(0)
    round_state.drop(1)
    assert not round_state.can_exit


def test_dropped_member_is_not_waited_for_after_the_end():
    round_state = make(2, rounds=1)
    for rank in range(2):
        commit(round_state, rank, now=1.0)
    round_state.leave(0)
    round_state.drop(1)
    assert round_state.can_exit
    failed = make(1)
    failed.abort("the loss is NaN")
    failed.drop(0)
    assert failed.can_exit


def test_leave_with_done_ends_the_run():
    round_state = make(2)
    round_state.leave(0, done=True)
    assert round_state.over
    assert not round_state.finished
    assert not round_state.can_exit


# --- stale synchronous parallel -------------------------------------------------------------------


def stale(staleness: int, slots: int = 2, **limits: float) -> RoundState:
    return make(slots, synchronous=False, staleness=staleness, **limits)


def test_ssp_worker_too_far_ahead_is_answered_when_the_slowest_catches_up():
    round_state = stale(1)
    commit(round_state, 0, now=1.0, sequence=1)
    assert round_state.acknowledged.tolist() == [1, 0]
    commit(round_state, 0, now=2.0, sequence=2)
    assert (round_state.version, round_state.acknowledged.tolist()) == (2, [1, 0])  # used at once, not answered
    commit(round_state, 1, now=5.0, sequence=1)
    assert round_state.acknowledged.tolist() == [2, 1]
    assert round_state.wait.tolist() == [3.0, 0.0]
    assert round_state.released == 1
    assert not round_state.pending


@pytest.mark.parametrize("staleness", [0, 2])
def test_ssp_worker_gets_no_further_ahead_than_the_staleness(staleness):
    round_state = stale(staleness)
    for sequence in range(1, staleness + 2):
        assert round_state.acknowledged[0] == sequence - 1
        commit(round_state, 0, now=1.0, sequence=sequence)
    assert round_state.acknowledged[0] == staleness


def test_ssp_releases_waiting_workers_on_leave_drop_and_end():
    for end in ("leave", "drop"):
        round_state = stale(0)
        commit(round_state, 0, now=1.0)
        assert round_state.acknowledged[0] == 0
        getattr(round_state, end)(1)
        assert round_state.acknowledged[0] == 1
    round_state = stale(0, slots=3)
    commit(round_state, 0, now=1.0)
    round_state.stop()
    commit(round_state, 1, now=2.0)
    assert round_state.acknowledged.tolist() == [1, 1, 0]
    assert round_state.used.tolist() == [wire.AT_ONCE, 0, 0]


def test_ssp_commit_of_dead_worker_counts_for_its_replacement():
    round_state = stale(0)
    commit(round_state, 0, now=1.0)
    round_state.join(0, 99, now=2.0)
    assert (round_state.acknowledged[0], round_state.version) == (1, 1)


def test_fastest_is_the_pace_of_the_fastest_member_that_reported():
    round_state = make(3, synchronous=False)
    assert round_state.fastest == 0
    for rank, pace in enumerate((0.5, 0.2, math.nan)):
        message = wire.message(wire.COMMIT, rank=rank, sequence=1, pace=pace)
        round_state.applied(round_state.commit(message, 1.0), 1.0)
    assert round_state.fastest == 0.2 == round_state.status()["fastest"]
    round_state.leave(1)
    assert round_state.fastest == 0.5
