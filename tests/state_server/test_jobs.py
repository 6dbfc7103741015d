"""The life of a job in the registry, in virtual time: begin, refusal, replacement, oblivion."""

import time

import pytest
from calling import report

from esync import config
from esync.coordination.coordinator import ConflictError, InvalidError
from esync.coordination.straggler_policies import OnlinePolicySettings
from esync.state_server.jobs import Job
from esync.state_server.lifecycle import PersistentClock
from esync.state_server.registry import JobRegistry
from esync.state_server.schema import Report

ALIVE = config.JOB_ALIVE


class Frozen(PersistentClock):
    """A clock that shows what it is told."""

    time = 0.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch) -> type[Frozen]:
    monkeypatch.setattr(Frozen, "time", 0.0)
    monkeypatch.setattr("esync.state_server.jobs.PersistentClock", Frozen)
    return Frozen


def begin(jobs: JobRegistry, workers: int = 3, run: str = "", name: str = "default") -> Job:
    return jobs.begin(name, workers, 0.02, 1, run)


def started(clock: type[Frozen], run: str = "") -> tuple[JobRegistry, Job]:
    """A job whose three workers were in round 2 at 100 s."""
    jobs = JobRegistry()
    job = begin(jobs, run=run)
    for rank in range(3):
        job.query(rank, 1, 0, 1.0, now=91.0)
    for rank in range(3):
        job.reset(rank, 2, now=99.0)
        job.query(rank, 2, 1, 1.0, now=100.0)
    clock.time = 100.0
    return jobs, job


def test_job_that_is_running_is_not_replaced(clock):
    jobs, job = started(clock)
    clock.time = 104.0
    with pytest.raises(ConflictError, match=r"counts as going on for 1\.0 s without news") as refusal:
        begin(jobs, workers=2)
    assert refusal.value.retry_after == pytest.approx(ALIVE - 4.0)
    assert jobs.get("default") is job


def test_job_that_is_silent_is_replaced(clock):
    jobs, job = started(clock)
    clock.time = 100.0 + ALIVE
    new = begin(jobs, workers=2)
    assert jobs.get("default") is new
    assert job.ended is not None


def test_job_that_has_ended_is_replaced_at_once(clock):
    jobs, job = started(clock)
    job.end("done", now=100.0)
    job.end("again", now=100.1)
    assert (job.ended is not None, job.reason) == (True, "done")
    assert begin(jobs).coordinator.num_workers == 3


def test_job_that_no_worker_has_used_is_replaced_at_once(clock):
    jobs = JobRegistry()
    begin(jobs)
    new = begin(jobs, workers=2)
    assert jobs.get("default") is new


def test_job_begin_repeated_for_the_same_run_changes_nothing(clock):
    jobs, job = started(clock, run="a")
    clock.time = 100.1
    assert begin(jobs, run="a") is job
    clock.time = 500.0
    assert begin(jobs, run="a") is job
    clock.time = 100.1
    with pytest.raises(ConflictError):
        begin(jobs, run="b")


def test_job_is_not_kept_alive_by_early_workers_of_the_next_training(clock):
    """Published workers other than rank 0 may ask before rank 0's /init/ arrives."""
    jobs, job = started(clock)
    now = 100.0 + ALIVE
    job.query(1, None, 0, 1.0, now, te=0.0)
    job.query(2, None, 0, 1.0, now, te=0.0)
    job.query(1, None, 1, 1.0, now + 0.1, te=0.0)
    clock.time = now + 0.2
    new = begin(jobs)
    assert jobs.get("default") is new


def reported(job: Job, rank: int, round: int, now: float, seconds: float = 1.0) -> None:
    job.report(Report(**report(rank, round, seconds=seconds)), now)


def test_job_begun_by_a_worker_is_kept_until_its_first_message(clock):
    jobs = JobRegistry()
    job = begin(jobs, run="a")
    with pytest.raises(ConflictError):
        begin(jobs, run="b")
    assert begin(jobs, run="a") is job
    clock.time = ALIVE
    assert begin(jobs, run="b") is not job


@pytest.mark.parametrize("kind", ["reports", "steps"])
def test_job_is_kept_alive_by_reports_or_steps_alone(clock, kind):
    """Workers of modes other than esync never query."""
    jobs = JobRegistry()
    job = jobs.begin("default", 3, None, 1, watching=OnlinePolicySettings())
    for number in range(10):
        if kind == "reports":
            reported(job, number % 3, number + 1, now=4.0 * number)
        else:
            job.record_steps(1, number, 1, 1.0, now=4.0 * number)
        clock.time = 4.0 * number + 3.9
        with pytest.raises(ConflictError):
            begin(jobs)
    clock.time += ALIVE
    assert begin(jobs) is not job


@pytest.mark.parametrize("kind", ["question", "round", "rounds added up", "steps"])
def test_job_silence_is_measured_by_the_slowest_worker(clock, kind):
    jobs = JobRegistry()
    job = jobs.begin("default", 3, None, 1, watching=OnlinePolicySettings())
    if kind == "question":
        job.query(0, 1, 0, 60.0, now=100.0)
    elif kind == "round":
        reported(job, 1, 1, now=100.0, seconds=60.0)
    elif kind == "rounds added up":
        reported(job, 1, 1, now=50.0)
        reported(job, 1, 11, now=100.0, seconds=600.0)
    else:
        job.record_steps(1, 0, 10, 600.0, now=100.0)
    reported(job, 2, 1, now=100.0, seconds=0.1)  # a fast one
    clock.time = 100.0 + 3 * 60.0 - 1.0
    with pytest.raises(ConflictError) as refusal:
        begin(jobs)
    assert refusal.value.retry_after == pytest.approx(1.0)
    clock.time += 1.0
    assert begin(jobs) is not job


def test_job_with_absurd_capability_is_not_kept_forever(clock):
    jobs = JobRegistry()
    job = begin(jobs)
    job.query(0, 1, 0, 1e300, now=0.0)
    clock.time = config.JOB_FORGOTTEN
    assert begin(jobs) is not job


def test_job_is_not_kept_alive_by_early_reports_of_the_next_training(clock):
    """Workers that do not wait for the state server train on while rank 0's begin is refused."""
    jobs = JobRegistry()
    job = begin(jobs)
    for rank in range(3):
        reported(job, rank, 4, now=100.0)
    for round in range(1, 10):  # of another run
        reported(job, 1, round, now=100.5 + round)
        reported(job, 2, round, now=100.5 + round)
    clock.time = 100.0 + ALIVE
    assert begin(jobs) is not job


def test_job_with_replacement_is_kept_once_another_worker_is_heard(clock):
    jobs = JobRegistry()
    job = begin(jobs)
    for rank in range(2):
        reported(job, rank, 10, now=100.0)
    reported(job, 1, 1, now=101.0)  # asynchronous: it counts its own rounds
    reported(job, 0, 11, now=102.0)
    reported(job, 1, 2, now=106.0)
    clock.time = 106.0 + ALIVE - 0.1
    with pytest.raises(ConflictError):
        begin(jobs)


def test_job_is_kept_over_a_restart_of_the_server(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(Frozen, "resumed", classmethod(lambda cls, mark, latest=0.0: cls()))
    jobs = JobRegistry(tmp_path)
    job = begin(jobs)
    reported(job, 0, 1, now=100.0, seconds=20.0)
    clock.time = 1000.0  # the server was away
    again = JobRegistry(tmp_path)
    again.restore()
    clock.time = 1059.0
    with pytest.raises(ConflictError):
        begin(again)
    reported(again.get("default"), 0, 1, now=1059.0, seconds=20.0)  # the same report, sent again
    clock.time = 1060.0
    begin(again)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../a", "a b", "x" * 65, "ä", "a\n"])
def test_job_with_invalid_name_is_refused(name):
    for call in (
        lambda: begin(JobRegistry(), name=name),
        lambda: JobRegistry().find(name),
        lambda: JobRegistry().get(name),
    ):
        with pytest.raises(InvalidError, match="is not a name of a job"):
            call()


def test_job_without_messages_is_forgotten(clock, tmp_path):
    jobs = JobRegistry(tmp_path)
    job, other = begin(jobs, name="a"), begin(jobs, name="b")
    job.query(0, 1, 0, 1.0, now=0.0)
    other.query(0, 1, 0, 1.0, now=config.JOB_FORGOTTEN)
    clock.time = config.JOB_FORGOTTEN + 1.0
    assert jobs.all() == [other]
    assert [path.name for path in tmp_path.iterdir()] == ["b.journal"]


def test_job_that_nobody_has_asked_yet_stays_when_the_clock_of_the_machine_is_set(clock, monkeypatch):
    jobs = JobRegistry()
    job = begin(jobs)
    wall = time.time() + 2 * config.JOB_FORGOTTEN
    monkeypatch.setattr(time, "time", lambda: wall)
    assert jobs.all() == [job]
    clock.time += config.JOB_FORGOTTEN + 1.0
    assert jobs.all() == []
