"""The coordinator's decisions in scenarios worked out by hand."""

import pytest

from esync.coordination.coordinator import Coordinator

NOT_READY, READY = False, True


def begun(speeds: list[float], epsilon: float = 0.0, **options) -> Coordinator:
    """A coordinator whose devices all began round 1 at time 0 and told their capability."""
    coordinator = Coordinator(len(speeds), epsilon, **options)
    for rank, speed in enumerate(speeds):
        assert coordinator.apply(rank, 0, speed, now=0.0) is NOT_READY
    return coordinator


def record(coordinator: Coordinator, rank: int) -> list:
    return coordinator.snapshot()["records"][rank]


def test_fast_device_trains_until_the_slowest_is_about_to_end():
    job = begun([0.3, 1.0])
    assert job.apply(0, 1, 0.3, now=0.3) is NOT_READY  # 0.7 s left: another iteration fits
    assert job.apply(0, 2, 0.3, now=0.6) is NOT_READY  # 0.4 s left
    assert job.apply(0, 3, 0.3, now=0.9) is READY  # 0.1 s left: the next one would make the slowest wait
    assert job.apply(1, 1, 1.0, now=1.0) is READY


def test_epsilon_makes_ready_earlier():
    job = begun([0.3, 1.0], epsilon=0.15)
    assert job.apply(0, 1, 0.3, now=0.3) is NOT_READY  # 0.7 s left
    assert job.apply(0, 2, 0.3, now=0.6) is READY  # 0.4 s left, less than 0.3 + 0.15


def test_equally_slow_devices_start_no_other_iteration():
    job = begun([1.0, 1.0])
    assert job.apply(0, 1, 1.0, now=1.0) is READY
    assert job.apply(1, 1, 1.0, now=1.001) is READY

    job = begun([1.0, 1.0])  # rank 1, which does not count as the slowest, comes first
    assert job.apply(1, 1, 1.0, now=1.0) is READY
    assert job.apply(0, 1, 1.0, now=1.001) is READY


def test_devices_with_an_iteration_are_ready_after_the_slowest():
    job = begun([0.3, 1.0, 0.3])
    assert job.apply(1, 1, 1.0, now=1.0) is READY
    assert job.apply(0, 1, 0.3, now=1.0) is READY
    assert job.apply(2, 0, 0.3, now=5.0) is NOT_READY


def test_device_of_unknown_speed_counts_as_the_slowest():
    job = Coordinator(3, 0.0)
    job.apply(0, 0, 0.1, now=0.0)
    job.apply(1, 0, 1.0, now=0.0)
    assert job.apply(0, 1, 0.1, now=0.1) is NOT_READY
    assert job.apply(1, 1, 1.0, now=1.0) is NOT_READY  # the slowest so far, but rank 2 may be slower
    job.apply(2, 0, 0.5, now=1.5)  # it is not
    assert job.apply(1, 2, 1.0, now=2.0) is READY
    assert job.apply(0, 2, 0.1, now=2.0) is READY


def test_device_without_trial_is_known_after_its_first_iteration():
    job = Coordinator(2, 0.0)
    job.apply(0, 0, 0.0, now=0.0)
    job.apply(1, 0, 0.0, now=0.0)
    assert job.apply(0, 1, 0.1, now=0.1) is NOT_READY
    assert job.apply(1, 1, 1.0, now=1.0) is READY  # now known, the slowest, and has done its iteration
    assert job.apply(0, 10, 0.1, now=1.0) is READY


def test_next_round_begins_with_the_reset_of_the_slowest():
    job = begun([0.3, 1.0])
    job.apply(0, 3, 0.3, now=0.9)
    job.apply(1, 1, 1.0, now=1.0)
    job.reset(0, 2, now=1.1)
    job.apply(0, 0, 0.3, now=1.1)
    assert job.apply(0, 1, 0.3, now=1.4) is NOT_READY
    assert job.apply(0, 2, 0.3, now=5.4) is NOT_READY  # the slowest is still busy with the exchange
    job.reset(1, 2, now=5.5)
    assert job.apply(0, 3, 0.3, now=5.7) is NOT_READY  # 0.8 s left
    assert job.apply(0, 4, 0.3, now=6.3) is READY  # 0.2 s left


def test_first_reset_of_a_round_clears_the_last_round():
    job = begun([0.3, 1.0])
    assert job.apply(0, 3, 0.3, now=0.9) is READY
    assert job.apply(1, 1, 1.0, now=1.0) is READY
    job.reset(1, 2, now=1.1, te=7.0)
    assert job.snapshot()["t"] == 2
    assert record(job, 0) == [0, 0, 0.3, 0.0, False, 1]
    assert record(job, 1) == [1, 0, 1.0, 7.0, False, 2]
    job.reset(0, 2, now=1.2)
    job.apply(0, 1, 0.3, now=1.5)
    job.reset(0, 2, now=1.6)  # repeated: clears nothing
    assert record(job, 0)[1] == 1


def test_repeated_reset_does_not_postpone_the_end_of_the_slowest():
    job = begun([0.3, 1.0])
    job.apply(1, 1, 1.0, now=1.0)
    job.reset(0, 2, now=1.0)
    job.reset(1, 2, now=1.0)
    job.reset(1, 2, now=1.5)
    assert job.apply(0, 3, 0.3, now=1.9) is READY  # 0.1 s left, not 0.6


def test_slowest_iterations_lets_the_slowest_do_several():
    job = begun([0.3, 1.0], slowest_iterations=3)
    assert job.apply(0, 3, 0.3, now=0.9) is NOT_READY  # 2.1 s left
    assert job.apply(1, 1, 1.0, now=1.0) is NOT_READY
    assert job.apply(1, 2, 1.0, now=2.0) is NOT_READY
    assert job.apply(0, 8, 0.3, now=2.4) is NOT_READY  # 0.6 s left
    assert job.apply(0, 9, 0.3, now=2.75) is READY  # 0.25 s left
    assert job.apply(1, 3, 1.0, now=3.0) is READY


def test_capability_is_smoothed_over_iterations_and_the_trial_does_not_count():
    job = begun([0.1, 30.0])  # a cold start took 30 s
    job.apply(1, 1, 1.0, now=1.0)
    assert record(job, 1)[2] == 1.0
    job.apply(1, 2, 3.0, now=4.0)
    assert record(job, 1)[2] == pytest.approx(1.0 + 0.3 * (3.0 - 1.0))
    job.reset(1, 2, now=5.0)
    job.apply(1, 0, 3.0, now=5.0)  # published workers send the last iteration's time once more
    assert record(job, 1)[2] == pytest.approx(1.6)


def test_repeated_query_changes_nothing():
    job = begun([0.3, 1.0], epsilon=0.0)
    assert job.apply(1, 0, 1.0, now=0.8) is NOT_READY  # k = 0 again, 0.8 s later
    before = job.snapshot()
    assert job.apply(0, 1, 0.3, now=0.3) is NOT_READY
    assert job.apply(0, 1, 9.9, now=0.35, te=55.0) is NOT_READY
    assert before["records"][1] == record(job, 1)
    assert record(job, 0) == [0, 1, 0.3, 0.0, False, 1]
    assert job.apply(0, 2, 0.3, now=0.75) is READY  # 0.25 s left: the slowest began at 0, not at 0.8


def test_repeated_query_after_ready_is_ready_again():
    job = begun([0.3, 1.0, 0.1])
    assert job.apply(0, 3, 0.3, now=0.9) is READY
    job.apply(2, 1, 50.0, now=0.95)  # suddenly the slowest, with plenty of time left
    job.apply(2, 2, 50.0, now=0.96)
    assert job.apply(0, 3, 0.3, now=1.0) is READY
    assert job.apply(0, 4, 0.3, now=1.3) is READY  # it should not ask, but then it is told again


def test_repeated_query_after_not_ready_is_decided_again():
    job = begun([0.3, 1.0])
    assert job.apply(0, 1, 0.3, now=0.3) is NOT_READY
    assert job.apply(0, 1, 0.3, now=0.8) is READY  # the retry came so late that no iteration fits any more


def test_overtaken_query_changes_nothing():
    job = begun([0.3, 1.0])
    job.apply(0, 2, 0.3, now=0.6)
    before = job.snapshot()
    assert job.apply(0, 1, 0.3, now=0.95) is NOT_READY
    assert job.snapshot() == before


def test_last_progress_is_the_time_of_the_last_message():
    job = Coordinator(2, 0.0)
    assert job.last_progress is None
    job.apply(0, 0, 0.3, now=1.0)
    job.apply(0, 0, 0.3, now=2.0)
    assert job.last_progress == 1.0
    job.reset(0, 2, now=3.0)
    job.reset(0, 2, now=4.0)
    assert job.last_progress == 3.0
