"""Snapshots of a job for display: computing, waiting and slowest workers."""

import time
from functools import cached_property
from typing import Any

from .. import config
from . import metrics
from .jobs import Job
from .metrics import WorkerSpeed
from .schema import State, WorkerState

#: Number of the slowest worker's iterations without news after which a worker counts as silent.
_PATIENCE = 3


class JobSnapshot:
    """A copy of the displayed state of a job.

    It is made under `service.lock`, and converted to an answer without the lock, which takes some time
    with a thousand workers.
    """

    def __init__(self, job: Job) -> None:
        self.info, self.ended, self.reason, self.clock = job.info, job.ended, job.reason, job.clock
        self.heard, self.reports = list(job.heard), dict(job.reports)
        self.last_heard, self.absent = job.last_heard(), job.coordinator.absent
        self.coordinator = job.coordinator.snapshot()

    @cached_property
    def paces(self) -> dict[int, WorkerSpeed]:
        """The speeds of the workers."""
        records = self.coordinator["records"]
        return {rank: metrics.pace(capability, self.reports.get(rank)) for rank, _, capability, _, _, _ in records}


def summary(job: JobSnapshot) -> dict[str, Any]:
    """Return the summary of a job, `schema.JobSummary`."""
    reports = job.reports.values()
    reported = max((report.round if report.run_round is None else report.run_round for report in reports), default=0)
    return {
        "name": job.info.job,
        "id": job.info.key,
        "run": job.info.run,
        "state": _state(job),
        "started": job.info.started,
        "heard": _moment(job, job.last_heard),
        "ended": job.ended,
        "reason": job.reason,
        "num_workers": job.info.num_workers,
        "round": max(job.coordinator["t"], reported),
        "epsilon": job.coordinator["epsilon"],
        "slowest_iterations": job.info.slowest_iterations,
        "slowest": metrics.slowest(job.paces),
    }


def view(job: JobSnapshot, dropped: int) -> dict[str, Any]:
    """Return the job with its workers, `schema.JobView`.

    `dropped` is the number of entries missing in the history.
    """
    return {
        **summary(job),
        "now": time.time(),
        "workers": workers(job),
        "totals": metrics.totals(job.paces, job.reports.values()),
        "history_dropped": dropped,
    }


def workers(job: JobSnapshot) -> list[dict[str, Any]]:
    """Return the workers, `schema.WorkerView`, in the order of their ranks."""
    now, paces = job.clock.now(), job.paces
    records = job.coordinator["records"]
    all_ready = all(record[4] for record in records if record[0] not in job.absent)
    # A worker is silent while it waits for the slowest one.
    patience = max(config.ANNOUNCE_AFTER, _PATIENCE * max(pace.seconds for pace in paces.values()))
    views = []
    for rank, done, capability, _, ready, round in records:
        heard = job.heard[rank]
        if rank in job.absent:
            state: WorkerState = "dropped"
        elif heard is None:
            state = "not seen"
        elif job.ended is not None:
            state = "done"
        elif now - heard > patience:
            state = "silent"
        elif round < job.coordinator["t"] or (ready and all_ready):
            state = "exchanging"
        else:
            state = "waiting" if ready else "computing"
        views.append(
            {
                "rank": rank,
                "state": state,
                "round": round,
                "local_iterations": done,
                "ready": ready,
                "capability": capability,
                "epsilon": job.coordinator["epsilons"][rank],
                "heard": _moment(job, heard),
                "seconds_per_iteration": paces[rank].seconds,
                "speed": paces[rank].speed,
                "last_report": job.reports.get(rank),
            }
        )
    return views


def _state(job: JobSnapshot) -> State:
    if job.ended is not None:
        return "ended"
    if any(moment is None for moment in job.heard) or job.last_heard is None:
        return "waiting for workers"
    return "silent" if job.clock.now() - job.last_heard > config.ANNOUNCE_AFTER else "running"


def _moment(job: JobSnapshot, now: float | None) -> float | None:
    """Convert a time of the job's clock to seconds since 1970."""
    return None if now is None else round(time.time() - (job.clock.now() - now), 3)
