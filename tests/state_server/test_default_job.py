"""When /init/ begins a new training, and when it is refused; in virtual time."""

import pytest

from esync import config
from esync.coordination.coordinator import ConflictError, Coordinator
from SimpleStateServer.server.jobs import Job

ALIVE = config.JOB_ALIVE


def started(run: str = "") -> tuple[Job, Coordinator]:
    """A job whose three workers were in round 2 at 100 s."""
    job, coordinator = Job(), Coordinator(3, 0.02)
    job.init(coordinator, now=90.0, run=run)
    for rank in range(3):
        coordinator.apply(rank, 0, 1.0, now=91.0)
    for rank in range(3):
        coordinator.reset(rank, 2, now=99.0)
        coordinator.apply(rank, 1, 1.0, now=100.0)
    return job, coordinator


def test_there_is_nothing_before_the_first_init():
    with pytest.raises(ConflictError) as refusal:
        _ = Job().coordinator
    assert refusal.value.retry_after == 1.0


def test_a_running_job_is_not_replaced():
    job, coordinator = started()
    with pytest.raises(ConflictError, match=r"heard 4\.0 s ago") as refusal:
        job.init(Coordinator(2, 0.5), now=104.0)
    assert refusal.value.retry_after == pytest.approx(ALIVE - 4.0)
    assert job.coordinator is coordinator


def test_a_job_that_has_ended_is_replaced():
    job, _ = started()
    new = Coordinator(2, 0.5)
    job.init(new, now=100.0 + ALIVE)
    assert job.coordinator is new


def test_a_job_that_no_worker_has_used_is_replaced_at_once():
    job, new = Job(), Coordinator(2, 0.5)
    job.init(Coordinator(3, 0.5), now=1.0)
    job.init(new, now=1.1)
    assert job.coordinator is new


def test_a_repeated_init_of_the_same_run_changes_nothing():
    job, coordinator = started(run="a")
    job.init(Coordinator(3, 0.02), now=100.1, run="a")
    assert job.coordinator is coordinator
    job.init(Coordinator(3, 0.02), now=500.0, run="a")
    assert job.coordinator is coordinator
    with pytest.raises(ConflictError):
        job.init(Coordinator(3, 0.02), now=100.1, run="b")


def test_early_workers_of_the_next_training_do_not_keep_the_last_one_alive():
    """Published workers other than rank 0 may ask before rank 0's /init/ arrives."""
    job, coordinator = started()
    now = 100.0 + ALIVE
    coordinator.apply(1, 0, 1.0, now)
    coordinator.apply(2, 0, 1.0, now)
    coordinator.apply(1, 1, 1.0, now + 0.1)
    new = Coordinator(3, 0.5)
    job.init(new, now + 0.2)
    assert job.coordinator is new
