"""The coordinator's decisions in scenarios worked out by hand."""

import pytest
from coordinator_scripts import play, started_coordinator

from esync.coordination.coordinator import Coordinator


def record(coordinator: Coordinator, rank: int) -> list:
    return coordinator.snapshot()["records"][rank]


#: Name → speeds, what a coordinator is made with beside, and the messages.
SCENARIOS = {
    "a fast device trains until the slowest is about to end": (
        [0.3, 1.0],
        {},
        """
        0.3 s: 0 did 1: NOT READY  # 0.7 s left: another iteration fits
        0.6 s: 0 did 2: NOT READY  # 0.4 s left
        0.9 s: 0 did 3: READY      # 0.1 s left: the next one would make the slowest wait
        1.0 s: 1 did 1: READY
        """,
    ),
    "epsilon makes ready earlier": (
        [0.3, 1.0],
        {"epsilon": 0.15},
        """
        0.3 s: 0 did 1: NOT READY  # 0.7 s left
        0.6 s: 0 did 2: READY      # 0.4 s left, less than 0.3 + 0.15
        """,
    ),
    "equally slow devices start no other iteration": (
        [1.0, 1.0],
        {},
        """
        1.0 s: 0 did 1: READY
        1.001 s: 1 did 1: READY
        """,
    ),
    "nor where the one that does not count as the slowest comes first": (
        [1.0, 1.0],
        {},
        """
        1.0 s: 1 did 1: READY
        1.001 s: 0 did 1: READY
        """,
    ),
    "devices with an iteration are ready after the slowest": (
        [0.3, 1.0, 0.3],
        {},
        """
        1.0 s: 1 did 1: READY
        1.0 s: 0 did 1: READY
        5.0 s: 2 did 0: NOT READY
        """,
    ),
    "the next round begins with the RESET of the slowest": (
        [0.3, 1.0],
        {},
        """
        0.9 s: 0 did 3
        1.0 s: 1 did 1
        1.1 s: 0 RESET 2
        1.1 s: 0 did 0
        1.4 s: 0 did 1: NOT READY
        5.4 s: 0 did 2: NOT READY  # the slowest is still busy with the exchange
        5.5 s: 1 RESET 2
        5.7 s: 0 did 3: NOT READY  # 0.8 s left
        6.3 s: 0 did 4: READY      # 0.2 s left
        """,
    ),
    "a repeated RESET does not postpone the end of the slowest": (
        [0.3, 1.0],
        {},
        """
        1.0 s: 1 did 1
        1.0 s: 0 RESET 2
        1.0 s: 1 RESET 2
        1.5 s: 1 RESET 2
        1.9 s: 0 did 3: READY      # 0.1 s left, not 0.6
        """,
    ),
    "the slowest may do several iterations": (
        [0.3, 1.0],
        {"slowest_iterations": 3},
        """
        0.9 s: 0 did 3: NOT READY  # 2.1 s left
        1.0 s: 1 did 1: NOT READY
        2.0 s: 1 did 2: NOT READY
        2.4 s: 0 did 8: NOT READY  # 0.6 s left
        2.75 s: 0 did 9: READY     # 0.25 s left
        3.0 s: 1 did 3: READY
        """,
    ),
    "a question repeated after READY is answered alike": (
        [0.3, 1.0, 0.1],
        {},
        """
        0.9 s: 0 did 3: READY
        0.95 s: 2 did 1 in 50      # suddenly the slowest, with plenty of time left
        0.96 s: 2 did 2 in 50
        1.0 s: 0 did 3: READY
        1.3 s: 0 did 4: READY      # it should not ask, but then it is told again
        """,
    ),
    "a question repeated after NOT READY is decided again": (
        [0.3, 1.0],
        {},
        """
        0.3 s: 0 did 1: NOT READY
        0.8 s: 0 did 1: READY      # it came so late that no iteration fits any more
        """,
    ),
}


@pytest.mark.parametrize(("speeds", "options", "script"), SCENARIOS.values(), ids=SCENARIOS)
def test_coordinator_answers_as_worked_out_by_hand(speeds, options, script):
    play(started_coordinator(speeds, **options), speeds, script)


#: As above, where not all devices have told their speed at the beginning.
UNKNOWN = {
    "a device of unknown speed counts as the slowest": (
        [0.1, 1.0, 0.5],
        """
        0.0 s: 0 did 0
        0.0 s: 1 did 0
        0.1 s: 0 did 1: NOT READY
        1.0 s: 1 did 1: NOT READY  # the slowest so far, but rank 2 may be slower
        1.5 s: 2 did 0             # it is not
        2.0 s: 1 did 2: READY
        2.0 s: 0 did 2: READY
        """,
    ),
    "a device without a trial is known after its first iteration": (
        [0.1, 1.0],
        """
        0.0 s: 0 did 0 in 0.0
        0.0 s: 1 did 0 in 0.0
        0.1 s: 0 did 1: NOT READY
        1.0 s: 1 did 1: READY      # now known, the slowest, and has done its iteration
        1.0 s: 0 did 10: READY
        """,
    ),
}


@pytest.mark.parametrize(("speeds", "script"), UNKNOWN.values(), ids=UNKNOWN)
def test_coordinator_reckons_with_devices_of_unknown_speed(speeds, script):
    play(Coordinator(len(speeds), 0.0), speeds, script)


def test_first_reset_of_a_round_clears_the_last_round():
    job = started_coordinator([0.3, 1.0])
    assert job.query(0, None, 3, 0.3, now=0.9).ready
    assert job.query(1, None, 1, 1.0, now=1.0).ready
    job.reset(1, 2, now=1.1, te=7.0)
    assert job.snapshot()["t"] == 2
    assert record(job, 0) == [0, 0, 0.3, 0.0, False, 1]
    assert record(job, 1) == [1, 0, 1.0, 7.0, False, 2]
    job.reset(0, 2, now=1.2)
    job.query(0, None, 1, 0.3, now=1.5)
    job.reset(0, 2, now=1.6)  # repeated: clears nothing
    assert record(job, 0)[1] == 1


def test_capability_is_smoothed_over_iterations_and_the_trial_does_not_count():
    job = started_coordinator([0.1, 30.0])  # a cold start took 30 s
    job.query(1, None, 1, 1.0, now=1.0)
    assert record(job, 1)[2] == 1.0
    job.query(1, None, 2, 3.0, now=4.0)
    assert record(job, 1)[2] == pytest.approx(1.0 + 0.3 * (3.0 - 1.0))
    job.reset(1, 2, now=5.0)
    job.query(1, None, 0, 3.0, now=5.0)  # published workers send the last iteration's time once more
    assert record(job, 1)[2] == pytest.approx(1.6)


def test_repeated_query_changes_nothing():
    job = started_coordinator([0.3, 1.0], epsilon=0.0)
    assert not job.query(1, None, 0, 1.0, now=0.8).ready  # k = 0 again, 0.8 s later
    before = job.snapshot()
    assert not job.query(0, None, 1, 0.3, now=0.3).ready
    assert not job.query(0, None, 1, 9.9, now=0.35, te=55.0).ready
    assert before["records"][1] == record(job, 1)
    assert record(job, 0) == [0, 1, 0.3, 0.0, False, 1]
    assert job.query(0, None, 2, 0.3, now=0.75).ready  # 0.25 s left: the slowest began at 0, not at 0.8


def test_overtaken_query_changes_nothing():
    job = started_coordinator([0.3, 1.0])
    job.query(0, None, 2, 0.3, now=0.6)
    before = job.snapshot()
    assert not job.query(0, None, 1, 0.3, now=0.95).ready
    assert job.snapshot() == before


def test_last_progress_is_the_time_of_the_last_message():
    job = Coordinator(2, 0.0)
    assert job.last_progress is None
    job.query(0, None, 0, 0.3, now=1.0)
    job.query(0, None, 0, 0.3, now=2.0)
    assert job.last_progress == 1.0
    job.reset(0, 2, now=3.0)
    job.reset(0, 2, now=4.0)
    assert job.last_progress == 3.0
