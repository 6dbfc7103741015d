"""Properties of the coordinator: bounds on waiting, worker clocks, and thread safety."""

import math
import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_cluster import VirtualCluster

from esync.coordination.coordinator import Coordinator, RefusedError

SPEEDS = st.lists(st.floats(0.02, 2.0), min_size=2, max_size=6)
EPSILON = st.floats(0.0, 0.5)
ROUNDING = 1e-6


@settings(deadline=None, max_examples=100)
@given(speeds=SPEEDS, epsilon=EPSILON, h=st.integers(1, 3))
def test_wait_is_at_most_one_own_iteration_and_epsilon(speeds, epsilon, h):
    slowest = max(speeds)
    for played in VirtualCluster(Coordinator(len(speeds), epsilon, h), speeds).run(rounds=4):
        for rank, (speed, wait, count) in enumerate(zip(speeds, played.waits, played.iterations, strict=True)):
            assert wait <= speed + epsilon + ROUNDING
            if rank != speeds.index(slowest):
                fitting = (h * slowest - epsilon) / speed  # iterations until the slowest is about to end
                assert max(1, math.floor(fitting - ROUNDING)) <= count <= max(1, math.floor(fitting + ROUNDING))
        assert played.iterations[speeds.index(slowest)] == h


@settings(deadline=None, max_examples=50)
@given(speeds=SPEEDS, epsilon=EPSILON, skew=st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6))
def test_decision_is_independent_of_worker_clocks(speeds, epsilon, skew):
    right = VirtualCluster(Coordinator(len(speeds), epsilon), speeds).run(rounds=3)
    wrong = VirtualCluster(Coordinator(len(speeds), epsilon), speeds, clock_skew=skew).run(rounds=3)
    assert right == wrong


@settings(deadline=None, max_examples=200)
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["query", "reset"]),
            st.integers(-1, 4),  # rank
            st.integers(0, 6),  # k or round
            st.floats(0.0, 2.0),  # c
            st.none() | st.integers(0, 4),  # round
        ),
        max_size=40,
    )
)
def test_coordinator_stays_consistent_under_any_sequence_of_messages(calls):
    job = Coordinator(3, 0.02)
    for now, (kind, rank, number, seconds, round) in enumerate(calls):
        before = job.snapshot()
        try:
            if kind == "query":
                answer = job.query(rank, round, number, seconds, float(now)).ready
                after = job.snapshot()["records"][rank]
                assert answer in (True, False)
                assert not answer or (after[4] and number > 0)  # READY is on record
                assert after[4] or not before["records"][rank][4]  # and is not taken back
            else:
                job.reset(rank, number, float(now), te=seconds)
                assert job.snapshot()["t"] - before["t"] in (0, 1)
        except RefusedError:
            assert job.snapshot() == before
        # Who is the slowest is not looked for anew with every question, and right all the same.
        assert job._slowest_awaited() is max(job.records, key=lambda record: record.speed_rank)


class Yielding(int):
    """A number that lets other threads run whenever it is compared.

    So what no lock protects goes wrong every time.
    """

    def __gt__(self, other: int) -> bool:
        answer = int(self) > other
        time.sleep(1e-4)
        return answer


def test_coordinator_counts_queries_of_concurrent_threads_once():
    """Each query comes twice, from two threads at once, and must be counted once."""
    workers, rounds, questions = 3, 3, 30
    job, in_turn = (Coordinator(workers, 0.0) for _ in range(2))
    gate = threading.Barrier(2 * workers, timeout=60)
    failures = []

    def messages(to: Coordinator, rank: int, round: int, number: type[int]) -> None:
        if round > 1:
            to.reset(rank, round, now=float(round))
        for k in range(questions):
            to.query(rank, round, number(k), 1.0 + rank + 0.01 * (k % 7), now=round + k / questions)

    def ask(rank: int) -> None:
        try:
            for round in range(1, rounds + 1):
                gate.wait()
                messages(job, rank, round, Yielding)
                gate.wait()
        except Exception as error:
            failures.append(error)
            gate.abort()

    threads = [threading.Thread(target=ask, args=(i % workers,)) for i in range(2 * workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for round in range(1, rounds + 1):
        for rank in range(workers):
            messages(in_turn, rank, round, int)
    assert not failures
    for got, expected in zip(job.snapshot()["records"], in_turn.snapshot()["records"], strict=True):
        assert got[:3] == expected[:3]  # rank, k and the smoothed capability
