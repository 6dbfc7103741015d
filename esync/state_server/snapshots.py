"""Snapshots of a job for display: who computes, who waits, who is the slowest."""

import time
from typing import Any

from .. import config
from . import metrics
from .jobs import Job
from .metrics import WorkerSpeed
from .schema import JobSummary, JobView, State, WorkerState, WorkerView

#: A worker counts as silent after this many iterations of the slowest worker without news.
_PATIENCE = 3


class CoordinatorSnapshot:
    """A snapshot of a job's coordinator, taken only once.

    With a thousand workers it takes some time.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.coordinator = job.coordinator.snapshot()
        self.paces: dict[int, WorkerSpeed] = {
            rank: metrics.pace(capability, job.reports.get(rank))
            for rank, _, capability, _, _, _ in self.coordinator["records"]
        }


def summary(moment: CoordinatorSnapshot) -> dict[str, Any]:
    """Return the fields of a `JobSummary`."""
    job, shown = moment.job, moment.coordinator
    heard = job.last_heard()
    reported = max((report.round for report in job.reports.values()), default=0)
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
        "round": max(shown["t"], reported),
        "epsilon": shown["epsilon"],
        "slowest_iterations": job.coordinator.slowest_iterations,
        "slowest": metrics.slowest(moment.paces),
    }


def view(job: Job, dropped: int) -> JobView:
    """Return the job with its workers.

    `dropped` is the number of entries that the history has lost.
    """
    moment = CoordinatorSnapshot(job)
    return JobView(
        **summary(moment),
        now=time.time(),
        workers=workers(moment),
        totals=metrics.totals(moment.paces, job.reports.values()),
        history_dropped=dropped,
    )


def summaries(jobs: list[Job]) -> list[JobSummary]:
    """Return the summaries of several jobs."""
    return [JobSummary(**summary(CoordinatorSnapshot(job))) for job in jobs]


def workers(moment: CoordinatorSnapshot) -> list[WorkerView]:
    """Return the workers in the order of their ranks."""
    job, shown, paces = moment.job, moment.coordinator, moment.paces
    now = job.clock.now()
    records = shown["records"]
    absent = job.coordinator.absent
    all_ready = all(record[4] for record in records if record[0] not in absent)
    # A worker that waits for the slowest is silent meanwhile.
    patience = max(config.ANNOUNCE_AFTER, _PATIENCE * max(pace.seconds for pace in paces.values()))
    views = []
    for rank, done, capability, _, ready, round in records:
        heard = job.heard[rank]
        if rank in absent:
            state: WorkerState = "dropped"
        elif heard is None:
            state = "not seen"
        elif job.ended is not None:
            state = "done"
        elif now - heard > patience:
            state = "silent"
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
                seconds_per_iteration=paces[rank].seconds,
                speed=paces[rank].speed,
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
    """Return a time of the job's clock in seconds since 1970."""
    return None if now is None else time.time() - (job.clock.now() - now)
