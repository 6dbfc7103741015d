"""A server's round state: members, rounds, commits and who waits for whom."""

import math

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import RoundState
from esync.exchange.protocol.status import status_record

from .round_states import commit, make


def test_member_that_leaves_after_its_commit_contributes():
    round_state = make(3)
    commit(round_state, 1, 1.0)
    round_state.leave(1)
    commit(round_state, 0, 2.0)
    assert commit(round_state, 2, 3.0) == [0, 1, 2]


@pytest.mark.parametrize(
    ("steps", "exits"),
    [
        ("", False),
        ("join 0, join 2, leave 0", False),
        ("join 0, join 2, leave 0, leave 2", True),  # all who have joined
        ("join 0, leave 0, join 0", False),
        ("join 0, join 1, drop 0, drop 1, leave 0", False),  # it is not known whether it has done its work
        ("join 0, join 1, drop 0, drop 1, leave 0, join 1, leave 1", True),
        ("join 0, join 1, leave 0, drop 1", False),
        ("join 0, join 1, drop 1, await 1, leave 0", False),
        ("join 0, join 1, drop 1, await 1, leave 0, join 1, leave 1", True),
        ("join 0, join 1, done 0", False),
        ("join 0, join 1, done 0, drop 1", True),
        ("join 0, stop 0, drop 0", True),
        ("join 0, abort 0, drop 0", True),
    ],
)
def test_round_state_can_exit_when_the_run_is_over_and_nobody_is_expected(steps, exits):
    round_state = RoundState(3, True)
    for step, rank in (command.split() for command in steps.split(", ") if command):
        slot = int(rank)
        {
            "join": lambda slot: round_state.join(slot, 10 + slot, 0.0),
            "leave": round_state.leave,
            "done": lambda slot: round_state.leave(slot, done=True),
            "drop": round_state.drop,
            "await": round_state.promised.add,
            "stop": lambda slot: (round_state.stop(), commit(round_state, slot)),
            "abort": lambda slot: round_state.abort("the loss is NaN"),
        }[step](slot)
    assert round_state.can_exit is exits


def test_arrivals_count_processes_not_joins():
    round_state = RoundState(2, True)
    for nonce in (5, 5, 6):
        round_state.join(1, nonce, 0.0)
    status = status_record(round_state)
    assert status["arrivals"].tolist() == [0, 2]
    assert status["nonce"].tolist() == [0, 6]


def test_count_of_local_iterations_advances_round_and_samples():
    round_state = make(1, samples=50)
    round_state.count(20, 1.0)
    round_state.count(20, 2.0)
    assert (round_state.round, round_state.samples, round_state.finished) == (2, 40, False)
    for now in (3.0, 4.0):  # after the end it changes nothing
        round_state.count(20, now)
        assert (round_state.round, round_state.samples, round_state.finished) == (3, 60, True)


def test_dropped_member_is_not_waited_for_until_a_replacement_joins():
    round_state = make(3)
    commit(round_state, 0, now=1.0)
    commit(round_state, 2, now=2.0)
    round_state.drop(1)
    assert round_state.due() == [0, 2]
    round_state.applied([0, 2], now=3.0)
    assert round_state.round == 1
    assert status_record(round_state)["member"].tolist() == [1, 0, 1]
    commit(round_state, 0, now=4.0, sequence=2)
    assert commit(round_state, 2, now=5.0, sequence=2) == [0, 2]
    round_state.join(1, 99, now=6.0)  # a replacement in its slot
    assert status_record(round_state)["elapsed"] == 6.0
    assert status_record(round_state)["exchanged_at"] == 5.0  # what a schedule counts by: all workers know it
    commit(round_state, 0, now=7.0, sequence=3)
    assert commit(round_state, 2, now=7.0, sequence=3) == []
    assert commit(round_state, 1, now=8.0) == [0, 1, 2]


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
        commit(round_state, rank, pace=pace)
    assert round_state.fastest == 0.2 == status_record(round_state)["fastest"]
    round_state.leave(1)
    assert round_state.fastest == 0.5
