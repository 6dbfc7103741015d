"""A server's books: limits, and how a run ends."""

import math

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import Ledger, Limits

from .ledgers import commit, make


@pytest.mark.parametrize("synchronous", [True, False])
def test_limit_of_rounds(synchronous):
    ledger = make(2, synchronous, rounds=2)
    assert ledger.status()["stop_at"] == 2
    for sequence in (1, 2):
        assert not ledger.finished
        commit(ledger, 0, 1.0, sequence)
        assert not ledger.finished
        commit(ledger, 1, 1.0, sequence)
    assert ledger.finished
    assert (ledger.round, ledger.version) == (2, 4)


def test_limit_of_samples_ends_the_run_when_the_round_is_done():
    ledger = make(2, samples=100)
    for sequence in (1, 2):
        commit(ledger, 0, 1.0, sequence, samples=30)
        commit(ledger, 1, 1.0, sequence, samples=20)
        assert ledger.finished == (sequence == 2)
    assert ledger.samples == 100
    assert ledger.status()["stop_at"] == 2


def test_limit_of_samples_without_rounds():
    ledger = make(3, synchronous=False, samples=25)
    commit(ledger, 0, 1.0, 1, samples=24)
    assert not ledger.finished
    commit(ledger, 0, 1.0, 2, samples=1)
    assert ledger.finished


def test_limit_of_seconds_counts_from_when_all_were_there():
    ledger = Ledger(2, True, Limits(seconds=10.0))
    ledger.join(0, 1, now=100.0)
    ledger.join(1, 1, now=200.0)
    for sequence, now, over in ((1, 209.9, False), (2, 210.0, True)):
        commit(ledger, 0, now, sequence)
        commit(ledger, 1, now, sequence)
        assert ledger.finished is over
    assert ledger.status()["elapsed"] == 10.0


def test_a_replacement_does_not_set_the_clock_back():
    ledger = make(2, seconds=10.0)
    ledger.join(1, 77, now=8.0)
    commit(ledger, 0, 11.0)
    commit(ledger, 1, 11.0)
    assert ledger.finished


def test_stop_ends_the_run_after_the_round_under_way():
    ledger = make(2)
    commit(ledger, 0, 1.0)
    ledger.stop()
    assert not ledger.finished
    commit(ledger, 1, 1.0)
    assert ledger.finished
    assert ledger.round == 1


def test_stop_ends_a_run_without_rounds_at_once():
    ledger = make(2, synchronous=False)
    commit(ledger, 0, 1.0)
    ledger.stop()
    assert ledger.finished


def test_stop_comes_no_later_than_the_limit_and_no_later_than_said_before():
    ledger = make(1, rounds=1)
    ledger.stop()
    assert ledger.stop_at == 1
    ledger = make(1, rounds=5)
    ledger.stop()
    ledger.stop()
    assert ledger.stop_at == 1


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_run_that_is_over_stays_over(synchronous):
    ledger = make(1, synchronous, rounds=1)
    commit(ledger, 0, 1.0)
    ledger.stop()
    assert ledger.finished


@pytest.mark.parametrize("synchronous", [True, False])
def test_commits_after_the_end_are_acknowledged_but_not_used(synchronous):
    ledger = make(1, synchronous, rounds=1)
    commit(ledger, 0, 1.0, sequence=1)
    assert commit(ledger, 0, 2.0, sequence=2) == []
    status = ledger.status()
    assert (int(status["acknowledged"][0]), int(status["used"][0])) == (2, 0)
    assert (ledger.round, ledger.version, ledger.samples) == (1, 1, 1)


@pytest.mark.parametrize("limits", [Limits(rounds=1), Limits(samples=2)])
def test_a_server_that_does_not_decide_uses_the_commits_that_the_one_that_decides_may_still_use(limits):
    ledger = Ledger(2, False, limits, decides=False)
    for rank in range(2):
        ledger.join(rank, 10 + rank, now=0.0)
    for sequence in (1, 2, 3):  # two of them may be on their way to server 0
        assert commit(ledger, 0, 1.0, sequence) == [0]
    assert commit(ledger, 1, 2.0) == [1]
    assert ledger.status()["used"].tolist() == [wire.AT_ONCE] * 2
    assert ledger.version == 4
    ledger.abort("enough")
    assert commit(ledger, 1, 3.0, sequence=2) == []


def test_a_round_that_waits_when_the_run_ends_is_not_used():
    ledger = make(2, synchronous=False, samples=2)

    def say(rank, sequence, **terms):
        message = wire.message(wire.COMMIT, rank=rank, sequence=sequence, samples=1, **terms)
        if due := ledger.commit(message, 1.0):
            ledger.applied(due, 1.0)

    say(0, 1, use=wire.AT_ONCE, switch=wire.TOGETHER)
    say(0, 2, use=wire.TOGETHER)
    assert not ledger.finished
    say(1, 1, use=wire.AT_ONCE)  # it had not heard of the switch yet
    assert ledger.finished
    status = ledger.status()
    assert (status["acknowledged"].tolist(), status["used"].tolist()) == ([2, 1], [0, wire.AT_ONCE])
    ledger.leave(1)
    assert ledger.due() == []
    assert (ledger.version, ledger.samples) == (2, 2)


def test_abort_ends_the_run_and_the_first_reason_stays():
    ledger = make()
    assert ledger.status()["aborted"] == 0
    ledger.abort("worker 1: loss is NaN")
    ledger.abort("worker 0: something else")
    assert ledger.finished
    assert ledger.status()["aborted"] == 1
    assert ledger.status()["text"].item().decode() == "worker 1: loss is NaN"


def test_abort_without_a_reason_is_an_abort():
    ledger = make()
    ledger.abort("")
    assert ledger.finished
    assert ledger.status()["aborted"] == 1
    assert ledger.status()["text"].item()


def test_a_run_without_limits_never_ends():
    ledger = make(1)
    assert Limits() == Limits(math.inf, math.inf, math.inf)
    for sequence in range(1, 50):
        commit(ledger, 0, 1e9 * sequence, sequence, samples=10**9)
    assert not ledger.finished
    assert ledger.status()["stop_at"] == -1


def test_counting_after_the_end_changes_nothing():
    ledger = make(1, rounds=1)
    ledger.count(20, 1.0)
    ledger.count(20, 2.0)
    assert (ledger.round, ledger.version, ledger.samples) == (1, 1, 20)
