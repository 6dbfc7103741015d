"""The coordinator of ESync: which worker is READY to exchange, and when (paper, Algorithm 2).

Plain Python over records: no network, no globals and no clock of its own. Every call is given
`now`, the seconds of one monotonic clock that belongs to whoever runs the coordinator: the web
server passes its own, the simulator and the tests pass virtual time. Clocks of workers are never
read: an iteration ended when the message about it arrived.

It departs from the published rule in order to survive real clusters:

* seconds per iteration are smoothed, so that one slow iteration does not plan the whole round;
* as long as some worker has not told its speed, it counts as the slowest, so that the others go on
  training;
* the slowest may be given several iterations per round (`slowest_iterations`, the paper's case is
  1);
* every message may arrive twice. Of several about the same (rank, round, iteration) the first
  counts;
* NOT-READY comes with a lease: the time for which it would be NOT-READY anyway
  (docs/internals/coordination.md).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from .. import config
from .decision import NOT_READY, READY, ExchangeDecision, automatic_epsilon, decide
from .records import Ranking, Record
from .tiers import Division, TierSettings, decide_unawaited, iterations_for

#: Attributes that are not part of a coordinator's saved state, because they can be rebuilt.
UNSAVED = ("_lock", "_records", "_ranking", "_division")


class Coordinator:
    """The records of one job and the answers to its workers. It is thread-safe.

    Args:
        num_workers: the ranks are 0 … num_workers − 1.
        epsilon: seconds. A worker is READY when the slowest one ends sooner than one own iteration
            (and the round trip of a question, where it says how long that takes) + epsilon. None:
            chosen for each worker by the fluctuations of its iterations and round trips.
        slowest_iterations: local iterations of the slowest worker per round; 1 in the paper.
        tiering: how the workers are divided into tiers; None: all are of the first one.

    Raises:
        InvalidError: an argument is out of range.
    """

    def __init__(
        self,
        num_workers: int,
        epsilon: float | None,
        slowest_iterations: int = config.SLOWEST_ITERATIONS,
        tiering: TierSettings | None = None,
    ) -> None:
        if not 1 <= num_workers <= config.MAX_WORKERS:
            raise InvalidError(f"num_workers must lie between 1 and {config.MAX_WORKERS}, not {num_workers}")
        if slowest_iterations < 1:
            raise InvalidError(f"slowest_iterations must be 1 or more, not {slowest_iterations}")
        self.num_workers = num_workers
        self.epsilon = None if epsilon is None else seconds("epsilon", epsilon)
        self.slowest_iterations = slowest_iterations
        self._round = 1
        self._division = None if tiering is None else _division(tiering, num_workers)
        self._records = [Record(rank) for rank in range(num_workers)]
        self._absent: list[int] = []  # ranks that are left out of account
        self._ranking = Ranking(self._records)
        self._last_progress: float | None = None
        self._lock = Lock()

    @property
    def absent(self) -> frozenset[int]:
        """Ranks that are left out of account, because their workers are dead."""
        return frozenset(self._absent)

    @property
    def division(self) -> Division | None:
        """The division of the workers into tiers; None where all are of the first one."""
        return self._division

    @property
    def last_progress(self) -> float | None:
        """The time at which a message last told something new; None before the first.

        Repeated and refused messages do not count.
        """
        return self._last_progress

    @property
    def slowest_capability(self) -> float:
        """Smoothed seconds per iteration of the slowest participating worker; 0 while unknown."""
        with self._lock:
            absent = self.absent
            return max((record.capability for record in self._records if record.rank not in absent), default=0.0)

    def apply(
        self, rank: int, iteration: int, capability: float, now: float, te: float = 0.0, round: int | None = None
    ) -> bool:
        """Answer QUERY-STATE of a published worker, which asks after every iteration.

        When a question comes again, only its answer is worked out again: it can turn from NOT-READY
        to READY (the worker has not seen the first answer), but READY stays READY until the next
        round.

        Args:
            rank: of the worker that asks.
            iteration: local iterations that it has done in this round (k).
            capability: seconds of its newest iteration (c), not smoothed; 0 for unknown.
            now: the coordinator's time, seconds.
            te: the worker's own clock when that iteration ended; only kept to be shown.
            round: the round that it is in, if it says so (published workers do not).

        Returns:
            Whether the worker is READY.

        Raises:
            InvalidError: unknown rank, negative or non-finite value.
            ConflictError: the worker is in another round than the job, or the job has tiers, of
                which the answer to this question cannot tell.
        """
        with self._lock:
            record = self._record(rank)
            seconds("te", te)
            if self._division is not None and self._division.settings.divides:
                raise ConflictError(
                    "this job divides its workers into tiers (mode tiered), of which the published question knows "
                    "nothing: start this worker with the same version of ESync as the others"
                )
            self._check_question(record, iteration, capability, round)
            if iteration > record.asked:
                before = record.capability
                record.add_report(iteration, capability, now)
                record.te = te
                self._news(record, now, before)
            return self._answer(record, iteration, now).ready

    def query(
        self, rank: int, round: int, iteration: int, capability: float, now: float, round_trip: float | None = None
    ) -> ExchangeDecision:
        """Answer a worker that keeps leases.

        It may have done several iterations since its last question.

        Args:
            rank: of the worker that asks.
            round: the round that it is in.
            iteration: local iterations that it has done in this round (k); 0 never gets READY.
            capability: mean seconds of its iterations since its last question, without the time of
                questions and exchanges, not smoothed; 0 for unknown.
            now: the coordinator's time, seconds.
            round_trip: seconds that its newest answered question took; None where it does not say.

        Raises:
            InvalidError: unknown rank, negative or non-finite value.
            ConflictError: the worker is in another round than the job.
        """
        with self._lock:
            record = self._record(rank)
            if round_trip is not None and not 0 <= round_trip < math.inf:
                seconds("round_trip", round_trip)
            self._check_question(record, iteration, capability, round)
            if iteration > record.asked:
                iterations = iteration - (record.asked if record.asked > 0 else 0)
                if iterations < 1:
                    iterations = 1
                if round_trip is not None:
                    record.delayed(iteration, capability, now, iterations, round_trip)
                before, measured = record.capability, record.measured
                record.add_report(iteration, capability, now, iterations)
                self._news(record, now, before)
                if self._division is not None and (rank in self._division.aside or not measured):
                    self._division.update(self._records, self._absent)
            return self._answer(record, iteration, now)

    def reset(
        self,
        rank: int,
        round: int,
        now: float,
        te: float = 0.0,
        rejoin: bool = False,
        members: Collection[int] | None = None,
        aside: bool = False,
        exchange: float | None = None,
    ) -> None:
        """Take RESET: the worker holds the model of `round` and begins it.

        The first RESET for a round opens it for all.

        Args:
            rank: of the worker.
            round: the round.
            now: the coordinator's time, seconds.
            te: the worker's own clock; only kept to be shown.
            rejoin: it has taken over the slot of a dead worker: what that one has round about this
                round is void, but not what is known of its speed.
            members: the ranks that take part in the rounds; the others are dead and left out of
                account until they rejoin. None: nothing has changed.
            aside: rounds do not wait for this worker, as it has been told; it may be rounds behind.
            exchange: seconds that its exchange has taken, without the wait for others; None where
                it does not say.

        Raises:
            InvalidError: unknown rank, negative or non-finite value.
            ConflictError: `round` is neither the job's round nor the next one.
        """
        with self._lock:
            record = self._record(rank)
            count("t", round)
            seconds("te", te)
            if exchange is not None:
                seconds("exchange", exchange)
            present = None if members is None else {self._record(member).rank for member in members}
            division = self._division
            if not (self._round <= round or (aside and division is not None)) or round > self._round + 1:
                raise ConflictError(f"RESET for round {round} refused: the job is in round {self._round}")
            if present is not None:
                self._absent = [other for other in range(self.num_workers) if other not in present]
                self._ranking.forget()
            if rejoin:
                self._absent = [other for other in self._absent if other != rank]
                self._ranking.forget()
            elif round == record.round and not aside:
                return  # a repeated message
            if exchange is not None:
                weight = config.CAPABILITY_SMOOTHING if record.exchange else 1.0
                record.exchange += weight * (exchange - record.exchange)
            if division is not None and aside != (rank in division.aside):
                (division.aside.add if aside else division.aside.discard)(rank)
                self._ranking.forget()
            if round > self._round:
                self._round = round
                for other in self._records:
                    if division is None or other.rank not in division.aside:
                        other.asked, other.ready = -1, False
                if division is not None:
                    division.update(self._records, self._absent)
                    self._choose_iterations(division)
            record.round, record.asked, record.ready = round, -1, False
            record.finished = now
            record.te = te
            self._last_progress = now

    def snapshot(self) -> dict[str, Any]:
        """Return the job as GET / shows it; `records` are lists [rank, k, c, te, ready, round].

        `epsilon` is the given value, or the largest of `epsilons`, which has one for each rank.
        """
        with self._lock:
            epsilons = [self._epsilon(record) for record in self._records]
            return {
                "num_workers": self.num_workers,
                "t": self._round,
                "epsilon": max(epsilons),
                "epsilons": epsilons,
                "slowest_iterations": self.slowest_iterations,
                "records": [[r.rank, max(r.asked, 0), r.capability, r.te, r.ready, r.round] for r in self._records],
            }

    def state(self) -> dict[str, Any]:
        """Return everything that affects answers, as JSON can hold it."""
        with self._lock:
            kept = {name: value for name, value in vars(self).items() if name not in UNSAVED}
            if self._division is not None:
                kept["_division"] = self._division.state()
            return {**kept, "_records": [asdict(record) for record in self._records]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Coordinator":
        """Return a coordinator that answers as the one from which `state` was taken would."""
        self = cls(state["num_workers"], state["epsilon"])
        records = [Record(**fields) for fields in state["_records"]]
        saved = {name: state[name] for name in vars(self) if name in state and name not in UNSAVED}
        vars(self).update(saved, _records=records, _ranking=Ranking(records))
        if state.get("_division") is not None:
            self._division = Division.from_state(state["_division"])
        return self

    # --- called with the lock held ----------------------------------------------------------------

    def _record(self, rank: int) -> Record:
        if not 0 <= rank < self.num_workers:
            raise InvalidError(f"unknown rank {rank}: this job has the ranks 0 to {self.num_workers - 1}")
        return self._records[rank]

    def _check_round(self, record: Record, round: int | None) -> None:
        """Refuse a question from another round; `round` is the round that the worker gave."""
        if round is not None:
            count("t", round)
        if self._division is not None and record.rank in self._division.aside:
            return
        if record.round != self._round or round not in (None, self._round):
            raise ConflictError(
                f"rank {record.rank} asks in round {record.round if round is None else round}, but the job is in round "
                f"{self._round} and this rank's last RESET was for round {record.round}"
            )

    def _check_question(self, record: Record, iteration: int, capability: float, round: int | None) -> None:
        if record.round == self._round == round and iteration >= 0 and 0 <= capability < math.inf:
            return  # the usual case: answering questions is most of a state server's work
        count("k", iteration)
        seconds("c", capability)
        self._check_round(record, round)

    def _answer(self, record: Record, iteration: int, now: float) -> ExchangeDecision:
        if iteration < record.asked:
            return NOT_READY  # overtaken by a newer question, so the answer must have been NOT-READY
        if self._division is not None:
            return self._answer_in_tiers(self._division, record, now)
        if record.ready:
            return READY
        epsilon = self._epsilon(record)
        decision = decide(
            self._ranking.slowest(self._absent), record, self._round, self.slowest_iterations, epsilon, now
        )
        record.ready = decision.ready
        return decision

    def _answer_in_tiers(self, division: Division, record: Record, now: float) -> ExchangeDecision:
        """Answer a question, and tell the worker its tier, and whether it is left out."""
        rank = record.rank
        tier, out = division.tier(rank, self._absent), rank in division.left_out
        if (tier or out) and rank not in division.aside:
            division.aside.add(rank)
            self._ranking.forget()
        if out:
            return ExchangeDecision(False, tier=tier, left_out=True, share=division.shares.get(rank, 0.0))
        decision = READY
        if not record.ready:
            unknown = self._absent if not division.aside else {*self._absent, *division.aside}
            slowest, epsilon = self._ranking.slowest(unknown), self._epsilon(record)
            how = decide_unawaited if rank in division.aside else decide
            decision = how(slowest, record, self._round, self.slowest_iterations, epsilon, now)
            record.ready = decision.ready
        return replace(decision, tier=tier)

    def _choose_iterations(self, division: Division) -> None:
        """Choose the iterations of the slowest worker in the round that begins, if it is asked for."""
        share = division.settings.exchange_share
        counted = [
            other for other in self._records if other.rank not in division.aside and other.rank not in self._absent
        ]
        exchange = max((record.exchange for record in counted), default=0.0)
        pace = max((record.capability for record in counted), default=0.0)
        if share is not None and exchange and pace:
            self.slowest_iterations = iterations_for(exchange, pace, share, self.slowest_iterations)

    def _news(self, record: Record, now: float, before: float) -> None:
        """Note that a worker has told something new; `before` was its capability until then."""
        self._last_progress = now
        aside = self._division is not None and record.rank in self._division.aside
        if record.capability != before and record.rank not in self._absent and not aside:
            self._ranking.add(record)

    def _epsilon(self, record: Record) -> float:
        return automatic_epsilon(record) if self.epsilon is None else self.epsilon


def _division(tiering: TierSettings, workers: int) -> Division:
    """Begin the division of this many workers; InvalidError where the settings do not fit."""
    if tiering.tiers and len(tiering.tiers) != workers:
        raise InvalidError(f"tiers of {len(tiering.tiers)} ranks were given, but there are {workers} workers")
    if strange := [rank for rank in tiering.leave_out or () if not 0 < rank < workers]:
        raise InvalidError(
            f"rank {strange[0]} cannot be left out: this job has the ranks 0 to {workers - 1}, and rank 0 evaluates "
            "and writes the model"
        )
    return Division(tiering, workers)


class RefusedError(ValueError):
    """A message was refused and has changed nothing; the text says what was expected."""


class InvalidError(RefusedError):
    """The message makes no sense at any time: an unknown rank, a value out of range."""


class ConflictError(RefusedError):
    """The message does not fit the job's present state: another round, no job, another job.

    `retry_after` is the time in seconds after which the same message may be accepted, or None if it
    never will be.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def count(name: str, value: int) -> int:
    """Return the value, which counts something; InvalidError if it is negative."""
    if value < 0:
        raise InvalidError(f"{name} must not be negative, but is {value}")
    return value


def seconds(name: str, value: float) -> float:
    """Return the value, a length of time; InvalidError if it is negative or not finite."""
    if not 0 <= value < math.inf:
        raise InvalidError(f"{name} must be a finite number of seconds, 0 or more, but is {value}")
    return value
