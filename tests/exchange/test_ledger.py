"""A server's books: members, rounds, commits and who waits for whom."""

import math

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import Ledger

from .ledgers import commit, make


def test_a_round_waits_for_every_member():
    ledger = make(3)
    assert commit(ledger, 2, now=1.0) == []
    assert commit(ledger, 0, now=2.5) == []
    assert (ledger.round, ledger.version, ledger.samples) == (0, 0, 0)
    assert commit(ledger, 1, now=4.0) == [0, 1, 2]
    assert (ledger.round, ledger.version, ledger.samples) == (1, 3, 3)


def test_waits_are_from_each_commit_to_the_last_of_the_round():
    ledger = make(3)
    for rank, now in ((2, 1.0), (0, 2.5), (1, 4.0)):
        commit(ledger, rank, now)
    assert ledger.status()["wait"].tolist() == [1.5, 0.0, 3.0]


def test_without_rounds_every_commit_counts_at_once():
    ledger = make(3, synchronous=False)
    for sequence, (rank, version, round_) in enumerate([(2, 1, 0), (2, 2, 0), (0, 3, 1), (1, 4, 1)], start=1):
        assert commit(ledger, rank, now=1.0, sequence=sequence) == [rank]
        assert (ledger.version, ledger.round) == (version, round_)
    assert ledger.status()["wait"].tolist() == [0.0, 0.0, 0.0]


def test_a_commit_is_acknowledged_by_its_sequence_number():
    ledger = make()
    commit(ledger, 0, 1.0, sequence=7)
    assert ledger.status()["acknowledged"].tolist() == [0, 0]
    assert ledger.status()["committed"].tolist() == [1, 0]
    commit(ledger, 1, 1.0, sequence=9)
    status = ledger.status()
    assert status["acknowledged"].tolist() == [7, 9]
    assert status["used"].tolist() == [1, 1]
    assert status["committed"].tolist() == [0, 0]


def test_who_leaves_is_not_waited_for():
    ledger = make(3)
    commit(ledger, 0, 1.0)
    commit(ledger, 2, 1.5)
    ledger.leave(1)
    assert ledger.due() == [0, 2]
    assert ledger.status()["member"].tolist() == [1, 0, 1]


def test_who_leaves_after_its_commit_has_still_contributed():
    ledger = make(3)
    commit(ledger, 1, 1.0)
    ledger.leave(1)
    commit(ledger, 0, 2.0)
    assert commit(ledger, 2, 3.0) == [0, 1, 2]


def test_deserted_when_all_who_came_have_left():
    ledger = Ledger(3, True)
    assert not ledger.deserted
    ledger.join(0, 1, 0.0)
    ledger.join(2, 1, 0.0)
    ledger.leave(0)
    assert not ledger.deserted
    ledger.leave(2)
    assert ledger.deserted


def test_a_newcomer_ends_the_desertion():
    ledger = make(1)
    ledger.leave(0)
    ledger.join(0, 99, 1.0)
    assert not ledger.deserted
    assert ledger.status()["member"].tolist() == [1]


def test_arrivals_count_processes_not_greetings():
    ledger = Ledger(2, True)
    for nonce in (5, 5, 6):
        ledger.join(1, nonce, 0.0)
    status = ledger.status()
    assert status["arrivals"].tolist() == [0, 2]
    assert status["nonce"].tolist() == [0, 6]


def test_a_replacement_can_commit_what_the_dead_worker_had_not():
    ledger = make(2)
    commit(ledger, 0, 1.0)
    ledger.join(1, 99, now=5.0)
    assert commit(ledger, 1, 6.0) == [0, 1]
    assert ledger.status()["wait"].tolist() == [5.0, 0.0]


def test_counting_for_one_device():
    ledger = make(1, samples=50)
    ledger.count(20, 1.0)
    ledger.count(20, 2.0)
    assert (ledger.round, ledger.samples, ledger.finished) == (2, 40, False)
    ledger.count(20, 3.0)
    assert (ledger.round, ledger.samples, ledger.finished) == (3, 60, True)


def test_the_others_go_on_without_a_worker_that_is_gone():
    ledger = make(3)
    commit(ledger, 0, now=1.0)
    commit(ledger, 2, now=2.0)
    ledger.drop(1)
    assert ledger.due() == [0, 2]
    ledger.applied([0, 2], now=3.0)
    assert ledger.round == 1
    assert ledger.status()["member"].tolist() == [1, 0, 1]
    commit(ledger, 0, now=4.0, sequence=2)
    assert commit(ledger, 2, now=5.0, sequence=2) == [0, 2]
    ledger.join(1, 99, now=6.0)  # a newcomer in its slot
    assert ledger.status()["elapsed"] == 6.0
    commit(ledger, 0, now=7.0, sequence=3)
    assert commit(ledger, 2, now=7.0, sequence=3) == []
    assert commit(ledger, 1, now=8.0) == [0, 1, 2]


def test_a_worker_that_is_gone_is_waited_for_at_the_end_only_where_it_is_to_be_replaced():
    ledger = make(2)
    ledger.drop(1)
    ledger.awaited.add(1)
    assert not ledger.deserted
    ledger.leave(0)
    assert ledger.over
    assert not ledger.deserted
    ledger.awaited.discard(1)
    assert ledger.deserted


def test_a_goodbye_of_a_worker_that_was_dropped_does_not_end_the_run():
    ledger = make(2)
    for rank in range(2):
        ledger.drop(rank)
    ledger.leave(0)
    assert not ledger.deserted
    ledger.join(1, 99, now=1.0)
    ledger.leave(1)
    assert ledger.deserted


def test_a_worker_that_is_dropped_after_the_others_have_left_is_waited_for():
    ledger = make(2)
    ledger.leave(0)
    ledger.drop(1)
    assert not ledger.deserted


def test_nobody_is_waited_for_when_the_run_is_over():
    ledger = make(2, rounds=1)
    for rank in range(2):
        commit(ledger, rank, now=1.0)
    ledger.leave(0)
    ledger.drop(1)
    assert ledger.deserted
    failed = make(1)
    failed.abort("the loss is NaN")
    failed.drop(0)
    assert failed.deserted


def test_the_run_is_over_where_a_worker_says_so():
    ledger = make(2)
    ledger.leave(0, done=True)
    assert ledger.over
    assert not ledger.finished
    assert not ledger.deserted


# --- stale synchronous parallel ---------------------------------------------------------------------------------------


def stale(staleness: int, slots: int = 2, **limits: float) -> Ledger:
    return make(slots, synchronous=False, staleness=staleness, **limits)


def test_a_worker_that_is_too_far_ahead_is_answered_when_the_slowest_has_caught_up():
    ledger = stale(1)
    commit(ledger, 0, now=1.0, sequence=1)
    assert ledger.acknowledged.tolist() == [1, 0]
    commit(ledger, 0, now=2.0, sequence=2)
    assert (ledger.version, ledger.acknowledged.tolist()) == (2, [1, 0])  # used at once, not answered
    commit(ledger, 1, now=5.0, sequence=1)
    assert ledger.acknowledged.tolist() == [2, 1]
    assert ledger.wait.tolist() == [3.0, 0.0]
    assert ledger.released == 1
    assert not ledger.pending


@pytest.mark.parametrize("staleness", [0, 2])
def test_nobody_gets_further_ahead_than_that(staleness):
    ledger = stale(staleness)
    for sequence in range(1, staleness + 2):
        assert ledger.acknowledged[0] == sequence - 1
        commit(ledger, 0, now=1.0, sequence=sequence)
    assert ledger.acknowledged[0] == staleness


def test_who_leaves_is_not_waited_for_and_the_end_of_the_run_lets_all_go():
    for end in ("leave", "drop"):
        ledger = stale(0)
        commit(ledger, 0, now=1.0)
        assert ledger.acknowledged[0] == 0
        getattr(ledger, end)(1)
        assert ledger.acknowledged[0] == 1
    ledger = stale(0, slots=3)
    commit(ledger, 0, now=1.0)
    ledger.stop()
    commit(ledger, 1, now=2.0)
    assert ledger.acknowledged.tolist() == [1, 1, 0]
    assert ledger.used.tolist() == [wire.AT_ONCE, 0, 0]


def test_what_a_dead_worker_has_committed_counts_for_its_replacement():
    ledger = stale(0)
    commit(ledger, 0, now=1.0)
    ledger.join(0, 99, now=2.0)
    assert (ledger.acknowledged[0], ledger.version) == (1, 1)


def test_the_fastest_is_the_fastest_member_that_has_told():
    ledger = make(3, synchronous=False)
    assert ledger.fastest == 0
    for rank, pace in enumerate((0.5, 0.2, math.nan)):
        message = wire.message(wire.COMMIT, rank=rank, sequence=1, pace=pace)
        ledger.applied(ledger.commit(message, 1.0), 1.0)
    assert ledger.fastest == 0.2 == ledger.status()["fastest"]
    ledger.leave(1)
    assert ledger.fastest == 0.5
