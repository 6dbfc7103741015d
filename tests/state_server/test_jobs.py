"""When a job begins, when that is refused, and when it is forgotten; in virtual time."""

import pytest

from esync import config
from esync.coordination.refusals import ConflictError, InvalidError
from SimpleStateServer.server.clock import Clock
from SimpleStateServer.server.jobs import Job
from SimpleStateServer.server.registry import Jobs

ALIVE = config.JOB_ALIVE


class Frozen(Clock):
    """A clock that shows what it is told."""

    time = 0.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch) -> type[Frozen]:
    monkeypatch.setattr(Frozen, "time", 0.0)
    monkeypatch.setattr("SimpleStateServer.server.jobs.Clock", Frozen)
    return Frozen


def begin(jobs: Jobs, workers: int = 3, run: str = "", name: str = "default") -> Job:
    return jobs.begin(name, workers, 0.02, 1, run)


def started(clock: type[Frozen], run: str = "") -> tuple[Jobs, Job]:
    """A job whose three workers were in round 2 at 100 s."""
    jobs = Jobs()
    job = begin(jobs, run=run)
    for rank in range(3):
        job.query(rank, 1, 0, 1.0, now=91.0)
    for rank in range(3):
        job.reset(rank, 2, now=99.0)
        job.query(rank, 2, 1, 1.0, now=100.0)
    clock.time = 100.0
    return jobs, job


def test_there_is_nothing_before_the_first_begin():
    with pytest.raises(ConflictError, match="rank 0 has to") as refusal:
        Jobs().get("default")
    assert refusal.value.retry_after == 1.0
    assert Jobs().find("default") is None


def test_a_running_job_is_not_replaced(clock):
    jobs, job = started(clock)
    clock.time = 104.0
    with pytest.raises(ConflictError, match=r"heard 4\.0 s ago") as refusal:
        begin(jobs, workers=2)
    assert refusal.value.retry_after == pytest.approx(ALIVE - 4.0)
    assert jobs.get("default") is job


def test_a_silent_job_is_replaced(clock):
    jobs, job = started(clock)
    clock.time = 100.0 + ALIVE
    new = begin(jobs, workers=2)
    assert jobs.get("default") is new
    assert job.ended is not None


def test_a_job_that_has_ended_is_replaced_at_once(clock):
    jobs, job = started(clock)
    job.end("done", now=100.0)
    job.end("again", now=100.1)
    assert (job.ended is not None, job.reason) == (True, "done")
    assert begin(jobs).coordinator.num_workers == 3


def test_a_job_that_no_worker_has_used_is_replaced_at_once(clock):
    jobs = Jobs()
    begin(jobs)
    new = begin(jobs, workers=2)
    assert jobs.get("default") is new


def test_a_repeated_begin_of_the_same_run_changes_nothing(clock):
    jobs, job = started(clock, run="a")
    clock.time = 100.1
    assert begin(jobs, run="a") is job
    clock.time = 500.0
    assert begin(jobs, run="a") is job
    clock.time = 100.1
    with pytest.raises(ConflictError):
        begin(jobs, run="b")


def test_early_workers_of_the_next_training_do_not_keep_the_last_one_alive(clock):
    """Published workers other than rank 0 may ask before rank 0's /init/ arrives."""
    jobs, job = started(clock)
    now = 100.0 + ALIVE
    job.apply(1, 0, 1.0, now, te=0.0, round=None)
    job.apply(2, 0, 1.0, now, te=0.0, round=None)
    job.apply(1, 1, 1.0, now + 0.1, te=0.0, round=None)
    clock.time = now + 0.2
    new = begin(jobs)
    assert jobs.get("default") is new


def test_jobs_do_not_know_of_each_other(clock):
    jobs, job = started(clock)
    other = begin(jobs, workers=5, name="another")
    assert jobs.get("default") is job
    assert jobs.get("another") is other
    assert {one.name for one in jobs.all()} == {"default", "another"}


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../a", "a b", "x" * 65, "ä", "a\n"])
def test_names_that_are_none(name):
    for call in (lambda: begin(Jobs(), name=name), lambda: Jobs().find(name), lambda: Jobs().get(name)):
        with pytest.raises(InvalidError, match="is no name of a job"):
            call()


def test_the_number_of_jobs_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(config, "MAX_JOBS", 3)
    jobs = Jobs()
    for name in "abc":
        begin(jobs, name=name)
    with pytest.raises(ConflictError, match="3 jobs on this state server already") as refusal:
        begin(jobs, name="d")
    assert refusal.value.retry_after
    jobs.get("b").end("done", now=0.0)
    begin(jobs, name="d")
    assert {job.name for job in jobs.all()} == {"a", "c", "d"}


def test_a_job_without_news_is_forgotten(clock, tmp_path):
    jobs = Jobs(tmp_path)
    job, other = begin(jobs, name="a"), begin(jobs, name="b")
    job.query(0, 1, 0, 1.0, now=0.0)
    other.query(0, 1, 0, 1.0, now=config.JOB_FORGOTTEN)
    clock.time = config.JOB_FORGOTTEN + 1.0
    assert jobs.all() == [other]
    assert [path.name for path in tmp_path.iterdir()] == ["b.journal"]
