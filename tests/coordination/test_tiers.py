"""The division of workers into tiers, and the coordinator's answers to slower ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from esync import config
from esync.coordination.coordinator import ConflictError, Coordinator, InvalidError
from esync.coordination.records import Record
from esync.coordination.tier_settings import TierSettings
from esync.coordination.tiers import decide_aside, divide, left_out, shares

PACES = st.dictionaries(st.integers(0, 30), st.floats(0.001, 1000), min_size=1, max_size=12)


@given(PACES)
def test_divide_begins_each_tier_with_the_fastest_left_and_keeps_to_the_ratio(paces):
    tiers = divide(paces, {})
    assert tiers.keys() == paces.keys()
    for tier in range(max(tiers.values()) + 1):
        inside = [paces[rank] for rank in tiers if tiers[rank] == tier]
        assert max(inside) <= config.ROUND_ITERATIONS * min(inside)
        assert all(paces[rank] > config.ROUND_ITERATIONS * min(inside) for rank in tiers if tiers[rank] > tier)


def test_divide_lets_workers_up_to_the_chosen_time_into_the_first_tier():
    paces = {0: 1.0, 1: 9.0, 2: 20.0}
    assert divide(paces, {}) == {0: 0, 1: 1, 2: 1}
    assert divide(paces, {}, slowest=9.0) == {0: 0, 1: 0, 2: 1}
    assert divide(paces, {}, slowest=1.0) == {0: 0, 1: 1, 2: 1}


@given(PACES, st.dictionaries(st.integers(0, 30), st.integers(0, 3)))
def test_divide_of_unchanged_speeds_changes_nothing(paces, before):
    once = divide(paces, before)
    assert divide(paces, once) == once


@given(PACES, st.dictionaries(st.integers(0, 30), st.floats(0.96, 1.04)))
def test_divide_keeps_the_first_tier_while_speeds_fluctuate_by_less_than_the_hysteresis(paces, factors):
    """A worker that a fluctuation has moved once does not come back with the next one."""
    tiers, moves = divide(paces, {}), dict.fromkeys(paces, 0)
    for _ in range(4):
        for changed in ({rank: pace * factors.get(rank, 1) for rank, pace in paces.items()}, paces):
            new = divide(changed, tiers)
            for rank in paces:
                moves[rank] += (new[rank] == 0) != (tiers[rank] == 0)
            tiers = new
    assert max(moves.values()) == 0


@given(PACES)
def test_shares_add_up_to_one_and_no_majority_is_left_out(paces):
    assert sum(shares(paces).values()) == pytest.approx(1)
    out = left_out(paces, set())
    assert sum(shares(paces)[rank] for rank in out) < 0.01 * len(paces)
    assert min(paces, key=paces.__getitem__) not in out


def test_left_out_worker_comes_back_above_the_threshold_only():
    paces = {0: 1.0, 1: 80.0}  # a share of 1/81: more than 1 %, less than 1.5 %
    assert left_out(paces, set()) == set()
    assert left_out(paces, {1}) == {1}
    assert left_out({0: 1.0, 1: 50.0}, {1}) == set()


def test_of_many_workers_alike_as_many_take_part_as_the_noise_scale_allows():
    assert left_out(dict.fromkeys(range(100), 0.1), set()) == set()
    out = left_out(dict.fromkeys(range(150), 0.1), set())
    assert len(out) == 50
    fluctuating = {rank: 0.1 + 0.001 * ((7 * rank) % 10) for rank in range(150)}
    assert left_out(fluctuating, out) > out  # nobody comes back for the sake of one slow iteration of another
    assert len(left_out(fluctuating, out)) < 60


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TierSettings((0, 1)), "tiers of 2 ranks were given, but there are 3 workers"),
        (TierSettings(None, (0,)), "rank 0 cannot be left out"),
        (TierSettings(None, (3,)), "rank 3 cannot be left out"),
    ],
)
def test_coordinator_with_tiers_that_do_not_fit_is_refused(settings, message):
    with pytest.raises(InvalidError, match=message):
        Coordinator(3, 0.0, tiering=settings)


def started_coordinator(tiers=None, leave_out=(), paces=(1.0, 1.5, 10.0), iterations=1):
    """A coordinator whose workers have all done one iteration, at second 0."""
    coordinator = Coordinator(len(paces), 0.0, iterations, tiering=TierSettings(tiers, leave_out))
    for rank, pace in enumerate(paces):
        coordinator.query(rank, 1, 0, pace, 0.0)
    return coordinator


def test_coordinator_ends_a_round_without_those_of_slower_tiers():
    coordinator = started_coordinator()
    assert coordinator.query(1, 1, 1, 1.5, 1.5).ready  # the slowest of the first tier has done its iteration
    slow = coordinator.query(2, 1, 1, 10.0, 10.0)
    assert (slow.tier, slow.ready) == (1, True)
    for rank in (0, 1):
        coordinator.reset(rank, 2, 2.0)
    assert coordinator.query(1, 2, 1, 1.5, 3.5).ready  # the slow one has not begun this round


def test_coordinator_takes_what_slower_tiers_say_rounds_later():
    coordinator = started_coordinator()
    coordinator.query(2, 1, 1, 10.0, 0.5)
    for round_ in range(2, 9):
        for rank in (0, 1):
            coordinator.reset(rank, round_, round_)
    coordinator.reset(2, 5, 9.0, aside=True)
    assert not coordinator.query(2, 5, 0, 0, 9.0).ready  # no iteration yet
    assert coordinator.query(2, 5, 1, 10.0, 19.0).ready


def test_coordinator_has_a_fast_worker_of_a_slower_tier_fill_the_round():
    coordinator = started_coordinator(tiers=(0, 0, 1), paces=(1.0, 1.5, 0.5), iterations=4)
    assert not coordinator.query(2, 1, 1, 0.5, 0.5).ready
    assert coordinator.query(2, 1, 11, 0.5, 5.8).ready  # the round lasts 6 s


def test_one_slow_exchange_does_not_keep_a_worker_of_a_slower_tier_away_for_longer_than_a_round():
    slowest, slower = Record(0, ready=True, capability=1.0, exchanges=[60.0]), Record(1, asked=1, capability=0.5)
    lease = decide_aside(slowest, slower, 1, 4, 0.0, 0.0).lease
    assert 0 < lease <= 4


def test_coordinator_waits_for_a_worker_that_has_become_fast_when_it_says_so():
    coordinator = started_coordinator()
    assert coordinator.query(2, 1, 1, 10.0, 1.0).tier == 1
    for iteration in range(2, 20):
        answer = coordinator.query(2, 1, iteration, 1.0, iteration)
    assert answer.tier == 0
    assert coordinator.query(1, 1, 1, 1.5, 20.0).ready  # rounds do not wait for it yet
    for rank in (0, 1):
        coordinator.reset(rank, 2, 21.0)
    coordinator.reset(2, 2, 21.0)
    assert coordinator.division.aside == set()


def test_coordinator_promotes_the_next_tier_when_the_first_is_gone():
    coordinator = started_coordinator(tiers=(0, 1, 2))
    assert [coordinator.query(rank, 1, 1, 1.0, 1.0).tier for rank in (1, 2)] == [1, 2]
    coordinator.reset(1, 2, 2.0, members=(1, 2), aside=True)
    assert [coordinator.query(rank, 2, 2, 1.0, 3.0).tier for rank in (1, 2)] == [0, 1]


def test_coordinator_follows_slower_tiers_only_where_nobody_else_is_left():
    coordinator = started_coordinator(tiers=(0, 1, 1))
    for rank in (1, 2):
        coordinator.query(rank, 1, 1, 1.5, 1.0)  # which tells them their tier
    coordinator.reset(1, 4, 2.0, aside=True)  # the messages of worker 0 are delayed
    assert coordinator.snapshot()["t"] == 1
    coordinator.reset(0, 2, 2.1)
    coordinator.reset(1, 6, 3.0, members=(1, 2), aside=True)  # worker 0 is dead
    assert coordinator.snapshot()["t"] == 6
    with pytest.raises(ConflictError):
        coordinator.reset(0, 9, 4.0)


def test_slowest_worker_goes_by_the_present_speeds_of_all_where_rounds_wait_for_nobody():
    coordinator = Coordinator(2, 0.02)
    for rank, pace in enumerate((1.0, 2.0)):
        coordinator.query(rank, 1, 1, pace, 1.0)
    assert coordinator._slowest_awaited().rank == 1
    coordinator.absent = frozenset({0, 1})
    coordinator.query(0, 1, 2, 30.0, 2.0)
    assert coordinator._slowest_awaited().rank == 0


def test_coordinator_leaves_out_by_share_and_takes_back():
    coordinator = started_coordinator(leave_out=None, paces=(1.0, 1.0, 1000.0))
    assert coordinator.query(2, 1, 1, 1000.0, 1.0).left_out
    for iteration in range(2, 60):
        answer = coordinator.query(2, 1, iteration, 1.0, iteration)
    assert (answer.left_out, answer.tier) == (False, 0)


def test_fastest_worker_is_in_the_first_tier_though_it_has_slowed_down_since_the_choice():
    assert divide({0: 0.2, 1: 0.03, 2: 0.25}, {0: 1, 1: 0, 2: 1}, slowest=0.02)[1] == 0


@pytest.mark.parametrize("slowed", [0.03, 0.5])
def test_worker_that_trains_alone_ends_its_round_though_it_becomes_slower_in_it(slowed):
    """It may even become slower than those that are left out."""
    chosen = {"exchange_share": 1 / 3, "compressions": {"fp16": 16.0, "2bit": 2.0}}
    coordinator, paces, now = Coordinator(3, None, 1, TierSettings(None, None, **chosen)), [0.2, 0.02, 0.25], 0.0
    for iteration in (0, 1):
        for rank, pace in enumerate(paces):
            coordinator.query(rank, 1, iteration, iteration * pace, now := now + 0.3)
    for rank in (1, 0, 2):
        coordinator.reset(rank, 2, now, exchange=0.005)
    for rank in (2, 0):
        coordinator.query(rank, 2, 1, paces[rank], now := now + 0.25)
    for iteration in range(1, 9):
        answer = coordinator.query(1, 2, iteration, paces[1], now := now + 0.02)
    assert answer.ready
    coordinator.reset(1, 3, now, exchange=0.005)
    coordinator.reset(0, 3, now, aside=True, exchange=0.005)
    asked = [0, 0, 1]
    for _ in range(100):
        coordinator.query(2, 3, asked[2] + 1, paces[2], now := now + 0.25)  # a probe, which divides anew
        asked[2] += 1
        asked[1] += 1
        answer = coordinator.query(1, 3, asked[1], slowed, now := now + slowed)
        if answer.ready:
            break
    assert answer.ready


@given(PACES.filter(lambda paces: len(paces) > 1))
def test_division_survives_a_restart_of_the_state_server(paces):
    coordinator = started_coordinator(leave_out=None, paces=tuple(paces.values()))
    for rank, pace in enumerate(paces.values()):
        coordinator.query(rank, 1, 1, pace, 1.0)
    saved = TypeAdapter(Coordinator)
    again = saved.validate_python(json.loads(json.dumps(saved.dump_python(coordinator, mode="json"))))
    assert again == coordinator
    assert again.division is not None
    assert again.division.shares == coordinator.division.shares
    for rank, pace in enumerate(paces.values()):
        assert again.query(rank, 1, 2, pace, 2.0) == coordinator.query(rank, 1, 2, pace, 2.0)


def test_coordinator_calls_a_worker_of_a_slower_tier_when_no_round_begins_any_more():
    job = started_coordinator(tiers=(0, 0, 1), paces=(1.0, 1.0, 1.5), iterations=10)
    job.query(2, 1, 1, 1.5, 1.5)
    for rank in (0, 1):
        assert job.query(rank, 1, 10, 1.0, 10.0).ready  # and the run is over: nobody begins round 2
    assert not job.query(2, 1, 8, 1.5, 12.0).ready
    assert job.query(2, 1, 14, 1.5, 21.0).ready


def test_coordinator_with_tiers_refuses_the_published_question():
    with pytest.raises(ConflictError, match="mode tiered"):
        started_coordinator(tiers=(0, 0, 1)).query(2, None, 1, 1.0, 1.0)
