"""A job as it is now, for people: who computes, who waits, who is the slowest."""

import time
from typing import Any

from esync import config

from .jobs import Job
from .schema import JobSummary, JobView, State, WorkerState, WorkerView


def summary(job: Job) -> dict[str, Any]:
    """Return the fields of a `JobSummary`."""
    heard = job.last_heard()
    shown = job.coordinator.snapshot()
    return {
        "name": job.name,
        "id": job.key,
        "run": job.run,
        "state": _state(job, heard),
        "started": job.started,
        "heard": _moment(job, heard),
        "ended": job.ended,
        "reason": job.reason,
        "num_workers": job.coordinator.num_workers,
        "round": shown["t"],
        "epsilon": shown["epsilon"],
        "slowest_iterations": job.coordinator.slowest_iterations,
        "slowest": job.slowest,
    }


def view(job: Job, dropped: int) -> JobView:
    """Return the job with its workers; `dropped`: entries that the history has lost."""
    return JobView(**summary(job), workers=workers(job), history_dropped=dropped)


def summaries(jobs: list[Job]) -> list[JobSummary]:
    """Return the jobs for a list."""
    return [JobSummary(**summary(job)) for job in jobs]


def workers(job: Job) -> list[WorkerView]:
    """Return the workers by rank."""
    shown = job.coordinator.snapshot()
    records = shown["records"]
    absent = job.coordinator.absent
    all_ready = all(record[4] for record in records if record[0] not in absent)
    views = []
    for rank, done, capability, _, ready, round in records:
        heard = job.heard[rank]
        if rank in absent:
            state: WorkerState = "dropped"
        elif heard is None:
            state = "not seen"
        elif round < shown["t"] or (ready and all_ready):
            state = "exchanging"
        else:
            state = "waiting" if ready else "computing"
        views.append(
            WorkerView(
                rank=rank,
                state=state,
                round=round,
                local_iterations=done,
                ready=ready,
                capability=capability,
                epsilon=shown["epsilons"][rank],
                heard=_moment(job, heard),
                last_report=job.reports.get(rank),
            )
        )
    return views


def _state(job: Job, heard: float | None) -> State:
    if job.ended is not None:
        return "ended"
    if heard is None or any(moment is None for moment in job.heard):
        return "waiting for workers"
    return "silent" if job.clock.now() - heard > config.ANNOUNCE_AFTER else "running"


def _moment(job: Job, now: float | None) -> float | None:
    """Turn the job's time into seconds since 1970."""
    return None if now is None else time.time() - (job.clock.now() - now)
