"""Epsilon derived from measurements."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_cluster import VirtualCluster

from esync import config
from esync.coordination.coordinator import Coordinator

ROUNDING = 1e-6


def epsilons(job: Coordinator) -> list[float]:
    return job.snapshot()["epsilons"]


def test_automatic_epsilon_without_jitter_is_0():
    job = Coordinator(2, None)
    VirtualCluster(job, [0.1, 1.0], leases=True, round_trip=lambda: 0.02).run(20)
    assert epsilons(job) == [pytest.approx(0.0, abs=ROUNDING)] * 2


def test_automatic_epsilon_follows_the_jitter_of_iterations():
    job, draw = Coordinator(2, None), random.Random(0)
    VirtualCluster(job, [0.1, 1.0], step=lambda rank, speed: speed * draw.uniform(0.95, 1.05)).run(50)
    for speed, epsilon in zip([0.1, 1.0], epsilons(job), strict=True):
        assert 0.2 * 0.025 * speed < epsilon < 3 * 0.025 * speed  # the mean deviation is 0.025 of an iteration


def test_automatic_epsilon_with_leases_sees_the_jitter_of_single_iterations():
    """A mean of many iterations hardly fluctuates, but a single one does."""
    draw = random.Random(0)
    job = Coordinator(2, None)
    VirtualCluster(job, [0.1, 5.0], step=lambda rank, speed: speed * draw.uniform(0.95, 1.05), leases=True).run(80)
    assert 0.2 * 0.0025 < epsilons(job)[0] < 3 * 0.0025


def test_automatic_epsilon_follows_the_jitter_of_the_network():
    job, draw = Coordinator(2, None), random.Random(0)
    VirtualCluster(job, [0.5, 5.0], leases=True, round_trip=lambda: draw.uniform(0.01, 0.03)).run(50)
    assert 0.001 < epsilons(job)[0] < 0.015  # the mean deviation is 0.005


@settings(deadline=None, max_examples=60)
@given(
    speeds=st.lists(st.floats(0.02, 2.0), min_size=2, max_size=5),
    factors=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=20),
)
def test_automatic_epsilon_stays_below_a_small_share_of_an_iteration(speeds, factors):
    turn = iter(factors * 1000)
    job = Coordinator(len(speeds), None)
    VirtualCluster(job, speeds, step=lambda rank, speed: speed * next(turn), round_trip=lambda: next(turn)).run(3)
    for epsilon, (_, _, capability, *_) in zip(epsilons(job), job.snapshot()["records"], strict=True):
        assert 0 <= epsilon <= config.EPSILON_SHARE * capability + ROUNDING


@settings(deadline=None, max_examples=60)
@given(speeds=st.lists(st.floats(0.02, 2.0), min_size=2, max_size=6), round_trip=st.floats(0.0, 0.2))
def test_automatic_epsilon_bounds_waits_by_an_iteration_and_a_round_trip(speeds, round_trip):
    job = Coordinator(len(speeds), None)
    for played in VirtualCluster(job, speeds, leases=True, round_trip=lambda: round_trip).run(5)[2:]:
        for speed, wait in zip(speeds, played.waits, strict=True):
            assert wait <= (1 + config.EPSILON_SHARE) * speed + 2 * round_trip + ROUNDING


def test_epsilon_given_as_a_number_is_used():
    job, draw = Coordinator(2, 0.125), random.Random(0)
    VirtualCluster(job, [0.1, 1.0], step=lambda rank, speed: speed * draw.uniform(0.8, 1.2), leases=True).run(5)
    assert job.snapshot()["epsilon"] == 0.125
    assert epsilons(job) == [0.125, 0.125]
