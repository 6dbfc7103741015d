"""A training job that this server coordinates: its coordinator, reports and journal.

Like the coordinator, a job gets the time as an argument `now`, always a time of the job's clock, so
that tests need not wait.
"""

import logging
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..coordination.coordinator import ConflictError, Coordinator, InvalidError, RefusedError
from ..coordination.decision import ExchangeDecision
from ..coordination.straggler_policies import OnlinePolicy, PolicyDirective
from . import journal
from .counters import EVENT_KINDS, EventKind, JobCounters, WorkerCounters
from .history import History
from .history_entries import HistoryEntry, RunRecord
from .lifecycle import LivenessTracker, PersistentClock
from .schema import End, Report

logger = logging.getLogger("esync.state_server")


@dataclass
class Job:
    """A training job; its callers hold `service.lock`.

    Its fields are what the journal saves.

    Attributes:
        name: the job's name.
        coordinator: decides when its workers exchange.
        run: unique identifier of this training; "" if its client sends none.
        watch: detects stragglers; None if that is not needed.
        key: unique id of this run in the history.
        started: time of its start in seconds since 1970.
        heard: time of the last message of each worker, by rank; None before the first.
        reports: rank → newest report.
        ended: when the job ended (seconds since 1970); None while it runs.
        reason: why it ended.
        slowest: rank of the slowest worker when the current round began; None while unknown.
        round: the current round.
        liveness: whether the training is still running.
        clock: the job's clock.
        history: records its rounds and events; None records nothing.
    """

    name: str
    coordinator: Coordinator
    run: str = ""
    watch: OnlinePolicy | None = None
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = field(default_factory=time.time)
    heard: list[float | None] = field(default_factory=list)
    reports: dict[int, Report] = field(default_factory=dict)
    ended: float | None = None
    reason: str = ""
    slowest: int | None = None
    round: int = 1
    liveness: LivenessTracker = field(default_factory=LivenessTracker)

    def __post_init__(self) -> None:
        self.heard = self.heard or [None] * self.coordinator.num_workers
        self.clock = PersistentClock()
        self._begun = self.clock.now()  # of this server's record of it
        self.history: History | None = None
        self._workers = [WorkerCounters()] * self.coordinator.num_workers
        self._events: dict[EventKind, int] = dict.fromkeys(EVENT_KINDS, 0)
        self._journal: journal.Journal | None = None
        self._replaying = False

    # --- messages of workers ----------------------------------------------------------------------

    def query(
        self,
        rank: int,
        round: int | None,
        iteration: int,
        capability: float,
        now: float,
        round_trip: float | None = None,
        te: float = 0.0,
    ) -> ExchangeDecision:
        """Answer a query; see `Coordinator.query`."""
        decision = self.coordinator.query(rank, round, iteration, capability, now, round_trip, te)
        self._took("q", rank, now, round, iteration, capability, round_trip, *([te] if te else []))
        return decision

    def reset(
        self,
        rank: int,
        round: int,
        now: float,
        te: float = 0.0,
        rejoin: bool = False,
        members: list[int] | None = None,
        aside: bool = False,
        exchange: float | None = None,
    ) -> None:
        """Record that a worker has begun a round; see `Coordinator.reset`."""
        before = self.coordinator.absent
        self.coordinator.reset(rank, round, now, te, rejoin, members, aside, exchange)
        self._took(
            "r",
            rank,
            now,
            round,
            te,
            rejoin,
            members,
            *([aside, exchange] if aside or exchange is not None else []),
        )
        if rejoin:
            self._record_event("rejoin", "a replacement takes its place", rank, round)
        for lost in sorted(self.coordinator.absent - before):
            self._record_event("lost", "the others go on without it", lost, round)
        if round > self.round:
            self.round = round
            self._name_slowest()

    def record_steps(self, rank: int, since: int, steps: int, seconds: float, now: float) -> PolicyDirective:
        """Record the duration of a worker's steps; see `OnlinePolicy.record_steps`.

        Raises:
            InvalidError: the job does not have that rank.
            ConflictError: the job does not detect stragglers.
        """
        if self.watch is None:
            raise ConflictError(f"job {self.name!r} was begun without a search for stragglers")
        self._check_rank(rank)
        before = self.watch.stragglers
        directive = self.watch.record_steps(rank, since, steps, seconds)
        self.liveness.steps(rank, since, steps, seconds, now)
        self._took("s", rank, now, since, steps, seconds)
        for slow in sorted(self.watch.stragglers - before):
            self._record_event("straggler", f"it is slow (policy {self.watch.policy})", slow)
        for recovered in sorted(before - self.watch.stragglers):
            self._record_event("recovered", "it is as fast as the others again", recovered)
        return directive

    def report(self, report: Report, now: float, at: float | None = None) -> None:
        """Record a worker's report of a finished round, received at `at` (seconds since 1970).

        Raises:
            InvalidError: the job does not have that rank.
        """
        at = time.time() if at is None else at
        self._check_rank(report.rank)
        self.reports[report.rank] = report
        self._workers[report.rank] = self._workers[report.rank].plus(report)
        self.liveness.report(report, now)
        self._took("p", report.rank, now, at, report.model_dump(exclude={"rank"}))
        self._record("report", finished=at, **report.model_dump())

    def end(self, reason: str, now: float, at: float | None = None) -> None:
        """Record the end of the training; a second call changes nothing.

        Queries of late workers are still answered.
        """
        if self.ended is not None:
            return
        self.ended, self.reason = (time.time() if at is None else at), reason
        self._took("e", None, now, reason, self.ended)
        self._record("end", ended=self.ended, reason=reason)
        self._record_event("end", reason)

    # --- state for others -------------------------------------------------------------------------

    @property
    def info(self) -> RunRecord:
        """The row of the run in the history."""
        job = self.coordinator
        return RunRecord(
            self.key, self.name, self.run, self.started, job.num_workers, job.epsilon, job.slowest_iterations
        )

    def counters(self) -> JobCounters:
        """Return a copy of the counters since this server started, and of the newest reports."""
        return JobCounters(list(self._workers), dict(self.reports), dict(self._events))

    def last_heard(self) -> float | None:
        """Return the time of the last message of any worker by the job's clock; None before the first."""
        return max((moment for moment in self.heard if moment is not None), default=None)

    def alive_for(self, now: float) -> float:
        """Return for how many more seconds another run may not replace this one.

        Another run may do so if no worker has reported anything new for some time (see
        `LivenessTracker.seconds_left`). Clients of the published API do not identify their run, so
        only *new* information counts: the first queries (k = 0, 1, …) of a training whose /init/ has
        not arrived yet look like repeated queries of the previous training.
        """
        if self.ended is not None:
            return 0.0
        return self.liveness.seconds_left(now, self.coordinator.last_progress, self.coordinator.slowest_capability)

    def idle(self) -> float:
        """Return the seconds since the last news by the job's clock, which a clock that is set does not move."""
        heard = self.last_heard()
        return self.clock.now() - (self._begun if heard is None else heard)

    # --- the journal ------------------------------------------------------------------------------

    def begin(self, path: Path | None) -> None:
        """Begin the job, with an empty journal at `path` unless that is None.

        Raises:
            OSError: the journal cannot be written.
        """
        if self.run:  # set by our own workers only
            self.liveness.heard = self.clock.now()
        if path is not None:
            self._journal = journal.Journal(path, self._head)
            self._journal.begin()
        self._record_event("begin", f"{self.coordinator.num_workers} workers")

    def take_over(self, present: "Job", path: Path | None) -> None:
        """Replace the job `present` and its journal at `path`.

        `present` stops writing, because its next line might start a new journal file (as it does when
        the file is long, or was broken by a full disk) and overwrite this job's head.

        Raises:
            OSError: the journal cannot be written; `present` continues.
        """
        self.begin(path)
        present.close()
        present.end("another training has taken its place", present.clock.now())

    @classmethod
    def restore(cls, path: Path, history: History | None = None) -> "Job":
        """Return the job that a journal describes, as it was when the server ended.

        Raises:
            DamagedJournalError: its head cannot be read, or is not a job's.
            Exception: it contains messages that no job accepts.
            OSError: the file cannot be read or written.
        """
        contents = journal.read(path)
        job = _SAVED.validate_python(contents.head["job"])
        if job.name != path.stem:
            raise journal.DamagedJournalError(f"its head is that of job {job.name[:80]!r}")
        latest = max((entry[1] for entry in contents.entries), default=0.0)
        job.clock, job.history = PersistentClock.resumed(contents.head["clock"], latest), history
        job._begun = job.clock.now()
        job._replaying = True
        for entry in contents.entries:
            job._replay(entry)
        job._replaying = False
        # Counters begin at 0; repeated reports of earlier rounds are not counted.
        for rank, sums in enumerate(job._workers):
            newest_round = job.reports[rank].round if rank in job.reports else 0
            job._workers[rank] = WorkerCounters(max(sums.rounds, newest_round))
        if contents.damage:
            logger.error("the journal %s is damaged: %s and what follows are ignored", path, contents.damage)
        job._journal = journal.Journal(path, job._head)
        if job.ended is None:
            if job.last_heard() is not None:
                job.liveness.heard = job.clock.now()  # no message could arrive while the server was down
            job._record_event(
                "restart", f"the state server has been restarted; {len(contents.entries)} messages were read"
            )
        return job

    def close(self, delete: bool = False) -> None:
        """Stop writing the journal, and optionally delete it."""
        if self._journal is not None:
            self._journal.close(delete)

    def _head(self) -> dict[str, Any]:
        return {"format": 1, "clock": self.clock.mark(), "job": _SAVED.dump_python(self, mode="json")}

    def _check_rank(self, rank: int) -> None:
        if rank >= self.coordinator.num_workers:
            raise InvalidError(f"unknown rank {rank}: this job has the ranks 0 to {self.coordinator.num_workers - 1}")

    def _took(self, kind: str, rank: int | None, now: float, *details: Any) -> None:
        if rank is not None:
            self.heard[rank] = now
        if self._journal is not None:
            self._journal.append([kind, now, rank, *details])

    def _replay(self, entry: journal.Entry) -> None:
        """Apply a message of the journal."""
        kind, now, rank, *details = entry
        try:
            if kind == "q":
                round, iteration, capability, *more = details
                self.query(rank, round, iteration, capability, now, *more)
            elif kind == "r":
                round, te, rejoin, members, *more = details
                self.reset(rank, round, now, te, rejoin, members, *more)
            elif kind == "s":
                since, steps, seconds = details
                self.record_steps(rank, since, steps, seconds, now)
            elif kind == "p":
                at, fields = details
                self.report(Report(rank=rank, **fields), now, at)
            elif kind == "e":
                reason, at = details
                self.end(End(reason=reason).reason, now, float(at))
        except RefusedError as reason:  # possible if another version of this program has written it
            logger.error("the journal of job %s has a message that is refused now: %s", self.name, reason)

    # --- for display ------------------------------------------------------------------------------

    def _name_slowest(self) -> None:
        records = self.coordinator.snapshot()["records"]
        rank, capability = max(((record[0], record[2]) for record in records), key=lambda pair: pair[1])
        if capability > 0 and rank != self.slowest:
            self.slowest = rank
            self._record_event("slowest", f"{capability:.3g} s an iteration", rank, self.round)

    def _record_event(self, kind: EventKind, text: str, rank: int | None = None, round: int | None = None) -> None:
        if self._replaying:
            return
        self._events[kind] += 1
        self._record("event", at=time.time(), kind=kind, rank=rank, round=round, text=text[:300])

    def _record(self, entry: str, **fields: Any) -> None:
        if self.history is not None:
            self.history.add(HistoryEntry(entry, self.info, fields))


_SAVED = TypeAdapter(Job)
