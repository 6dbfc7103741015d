"""Leases: how long NOT-READY holds, with the same decisions."""

import itertools

import pytest
from coordinator_scripts import play
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_cluster import VirtualCluster

from esync import config
from esync.coordination.coordinator import Coordinator
from esync.coordination.decision import ExchangeDecision

NOT_READY, READY = ExchangeDecision(False), ExchangeDecision(True)
ROUNDING = 1e-6
SPEEDS = st.lists(st.floats(0.02, 2.0), min_size=2, max_size=6)


def measured(speeds: list[float], epsilon: float = 0.0, **options) -> Coordinator:
    """Return a coordinator at time 0 of round 2.

    Every device has done one iteration, and the shortest ones are like it.
    """
    job = Coordinator(len(speeds), epsilon, **options)
    for rank, speed in enumerate(speeds):
        job.query(rank, 1, 0, speed, now=-10.0)
        job.query(rank, 1, 1, speed, now=-5.0)
    for rank in range(len(speeds)):
        job.reset(rank, 2, now=0.0)
    return job


# --- worked out by hand ---------------------------------------------------------------------------


#: Of the slowest device's 9 s, as long as nothing better is known than one iteration.
SHORTEST = config.LEASE_SHORTEST * 9.0
#: Name → speeds, what a coordinator is made with beside, and the messages from the beginning of round 2 on.
SCENARIOS = {
    "half of the remaining time": (
        [0.1, 10.0],
        {"epsilon": 0.3},
        """
        0.1 s: 0 did 1: lease 4.75   # half of 9.9 - 0.1 - 0.3
        2.0 s: 0 did 20: lease 3.8   # half of 8.0 - 0.1 - 0.3
        """,
    ),
    "no longer than the earliest end of the slowest": (
        [0.1, 9.0],
        {},
        f"""
        5.0 s: 0 did 50: lease {SHORTEST - 5.0}
        6.1 s: 0 did 60: NOT READY
        """,
    ),
    "over several iterations of the slowest": (
        [0.1, 9.0],
        {"slowest_iterations": 3},
        f"""
        0.1 s: 0 did 1: lease {SHORTEST - 0.1}
        9.0 s: 1 did 1: NOT READY
        18.0 s: 1 did 2: NOT READY
        19.9 s: 0 did 199: lease 3.5  # half of 27.0 - 19.9 - 0.1
        26.95 s: 0 did 269: READY
        27.0 s: 1 did 3: READY
        """,
    ),
    "none before the RESET of the slowest": (
        [0.1, 9.0],
        {},
        """
        9.0 s: 1 did 1
        10.0 s: 0 RESET 3
        10.1 s: 0 did 1: NOT READY
        10.2 s: 1 RESET 3
        10.2 s: 0 did 2: lease 4.45  # half of 9.0 - 0.1
        """,
    ),
    "none for the slowest itself": ([0.1, 9.0], {}, "0.1 s: 1 did 0: NOT READY\n9.0 s: 1 did 1: READY"),
}


@pytest.mark.parametrize(("speeds", "options", "script"), SCENARIOS.values(), ids=SCENARIOS)
def test_leases_are_as_worked_out_by_hand(speeds, options, script):
    play(measured(speeds, **options), speeds, script, round=2)


@pytest.mark.parametrize("script", ["0.1 s: 0 did 1: NOT READY", "0.0 s: 1 did 0\n0.1 s: 0 did 1: NOT READY"])
def test_query_without_predictable_slack_gets_no_lease(script):
    """Nothing, or the trial only, is known of the slowest."""
    play(Coordinator(2, 0.0), [0.1, 9.0], script, round=1)


def test_lease_is_longer_for_regular_iterations():
    job = measured([0.1, 9.0])
    for round in range(2, 40):
        start = 100.0 * round
        job.query(1, round, 1, 9.0, now=start)
        for rank in (0, 1):
            job.reset(rank, round + 1, now=start)
    assert job.query(0, 40, 80, 0.1, now=3900.0 + 8.0).lease == pytest.approx((1.0 - 0.1) / 2)


def test_lease_remembers_a_short_iteration_of_the_slowest():
    job = measured([0.1, 9.0])
    job.query(1, 2, 1, 4.5, now=4.5)
    for rank in (0, 1):
        job.reset(rank, 3, now=5.0)
    assert job.query(0, 3, 10, 0.1, now=6.0).lease <= 3.5
    assert job.query(0, 3, 36, 0.1, now=9.6) == NOT_READY


def test_lease_ends_before_a_new_slowest_device_can_exchange():
    """The lease ends before the first slowest device can end its iteration."""
    job = measured([0.1, 9.0, 8.5])
    lease = job.query(0, 2, 1, 0.1, now=0.1).lease
    assert job.query(2, 2, 1, 20.0, now=lease).ready  # now the slowest, and done
    assert 0.1 + lease <= config.LEASE_SHORTEST * 9.0
    assert job.query(0, 2, 40, 0.1, now=0.1 + lease) == READY


def test_lease_capability_mean_weighs_as_much_as_single_iterations():
    together, single = measured([0.1, 9.0]), measured([0.1, 9.0])
    together.query(0, 2, 5, 0.2, now=1.0)
    for k in range(1, 6):
        single.query(0, 2, k, 0.2, now=0.2 * k)
    assert together.snapshot()["records"][0][2] == pytest.approx(single.snapshot()["records"][0][2])


def test_round_trip_counts_as_time_until_the_next_query():
    job = measured([0.1, 1.0])
    assert job.query(0, 2, 7, 0.1, now=0.75) == ExchangeDecision(False, 0.0)
    assert job.query(0, 2, 7, 0.1, now=0.76, round_trip=0.2).ready is False  # heard before: nothing new
    assert job.query(0, 2, 8, 0.1, now=0.77, round_trip=0.2) == READY


@pytest.mark.parametrize("waits", [True, False])
def test_prediction_learns_whether_the_slowest_waits_for_answers(waits):
    """A worker that waits 0.2 s for every answer sends its messages 1.2 s apart, otherwise 1 s
    apart.
    """
    job = Coordinator(2, 0.0)
    apart = 1.2 if waits else 1.0
    for round in range(1, 40):
        start = 10.0 * round
        for rank in (0, 1):
            job.reset(rank, round, now=start)
        job.query(0, round, 1, 0.1, now=start + 0.1)
        assert job.query(1, round, 1, 1.0, now=start + apart, round_trip=0.2).ready or round == 1
    for rank in (0, 1):
        job.reset(rank, 40, now=500.0)
    assert job.query(0, 40, 9, 0.1, now=500.95).ready is not waits
    assert job.query(0, 40, 11, 0.1, now=501.11).ready


# --- properties -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(speeds=SPEEDS, epsilon=st.floats(0.0, 0.5), h=st.integers(1, 3))
def test_leases_without_jitter_change_only_the_number_of_queries(speeds, epsilon, h):
    with_leases = VirtualCluster(Coordinator(len(speeds), epsilon, h), speeds, leases=True).run(rounds=6)
    without = VirtualCluster(Coordinator(len(speeds), epsilon, h), speeds).run(rounds=6)
    for leased, asked in zip(with_leases, without, strict=True):
        assert leased.iterations == asked.iterations
        assert leased.waits == pytest.approx(asked.waits, abs=ROUNDING)
        assert all(few <= many for few, many in zip(leased.queries, asked.queries, strict=True))


@pytest.mark.parametrize("leases", [True, False])
@settings(deadline=None, max_examples=100)
@given(
    other_speeds=st.lists(st.floats(0.02, 1.0), min_size=1, max_size=5),
    ratio=st.floats(1.6, 20.0),
    epsilon=st.floats(0.0, 0.1),
    factors=st.lists(st.sampled_from([0.8, 1.0, 1.2]) | st.floats(0.8, 1.2), min_size=1, max_size=60),
)
def test_leases_with_jitter_keep_waits_within_the_bound(leases, other_speeds, ratio, epsilon, factors):
    """Whatever ±20 % do to the iterations, in an order that is chosen to do harm.

    Algorithm 2 alone (leases=False) bounds the wait of a device by its own iteration, epsilon, what
    the slowest's end was mispredicted by, and what the last question of another one was: 0.4 of its
    iterations at most, for it was thought to take 0.8 and took 1.2. Leases may add 5 % to that.
    """
    jitter, turn = 0.2, itertools.cycle(factors)
    speeds = [*other_speeds, ratio * max(other_speeds)]  # who is the slowest never changes
    cluster = VirtualCluster(
        Coordinator(len(speeds), epsilon), speeds, step=lambda rank, speed: speed * next(turn), leases=leases
    )
    for played in cluster.run(rounds=5):
        mispredicted = abs(played.ended - played.predicted)
        for speed, wait in zip(speeds, played.waits, strict=True):
            bound = (1 + jitter) * speed + epsilon + mispredicted + 2 * jitter * max(other_speeds)
            assert wait <= (1.05 if leases else 1.0) * bound + ROUNDING
        assert played.iterations[-1] == 1  # of the slowest
