"""The coordinator of ESync: which worker is READY to exchange, and when (paper, Algorithm 2).

It uses neither the network nor a clock. Callers pass `now`, the seconds of one monotonic clock: the
state server its own, the simulator and the tests virtual time. Clocks of workers are not used; an
iteration ends when its message arrives.

It extends the published rule for real clusters:

* seconds per iteration are smoothed, so a single slow iteration does not determine the whole round;
* a worker that has not reported its speed counts as the slowest, so the others continue to train;
* the slowest worker may do several iterations per round (`slowest_iterations`, 1 in the paper);
* every message may arrive twice; of several messages for the same (rank, round, iteration), only
  the first counts;
* NOT-READY includes a lease, the time for which the answer would not change
  (docs/internals/coordination.md).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from .. import config
from .automatic_settings import SettingsChooser
from .decision import NOT_READY, READY, ExchangeDecision, automatic_epsilon, decide
from .records import Ranking, Record
from .tier_settings import TierSettings
from .tiers import Division, decide_aside

#: Attributes that a coordinator's saved state has in another form, or that can be rebuilt.
UNSAVED = ("_lock", "_records", "_ranking", "_tiering", "_division", "_chooser")


class Coordinator:
    """The records of one job, and the answers to its workers; thread-safe.

    Args:
        num_workers: number of workers.
        epsilon: seconds. A worker is READY if the slowest one finishes earlier than one iteration
            of the worker, plus the round trip of a question if known, plus epsilon. None: chosen
            for each worker from the fluctuations of its iterations and round trips.
        slowest_iterations: local iterations of the slowest worker per round; 1 in the paper.
        tiering: settings for the division into tiers, and for what is chosen for each round; None: all
            workers are in the first tier, and nothing is chosen.

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
        self._tiering = tiering
        self._division: Division | None = None
        self._chooser: SettingsChooser | None = None
        if tiering is not None:
            try:
                tiering.check(num_workers)
            except ValueError as error:
                raise InvalidError(str(error)) from None
            self._division = Division(tiering, num_workers) if tiering.divides else None
            self._chooser = None if tiering.exchange_share is None else SettingsChooser(tiering, slowest_iterations)
        self._records = [Record(rank) for rank in range(num_workers)]
        self._absent: list[int] = []  # ranks whose workers are dead
        self._ranking = Ranking(self._records)
        self._last_progress: float | None = None
        self._lock = Lock()

    @property
    def absent(self) -> frozenset[int]:
        """Ranks that do not take part, because their workers are dead."""
        return frozenset(self._absent)

    @property
    def division(self) -> Division | None:
        """The division of the workers into tiers; None: all are in the first one."""
        return self._division

    @property
    def last_progress(self) -> float | None:
        """The time of the newest message, except duplicates and refused ones; None: there is none."""
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

        A repeated question is answered anew. The answer may change from NOT-READY to READY, but not
        back before the next round.

        Args:
            rank: of the worker.
            iteration: local iterations that it has done in this round (k).
            capability: seconds of its newest iteration (c), not smoothed; 0: not known.
            now: the coordinator's time, seconds.
            te: time of the worker's clock at the end of that iteration, for display only.
            round: of the worker; None: not sent (published workers).

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
            if self._division is not None:
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
                    self._divide(self._division)
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
        """Process RESET: the worker has the model of `round` and starts that round.

        The first RESET for a round opens it for all workers.

        Args:
            rank: of the worker.
            round: number of the round.
            now: the coordinator's time, seconds.
            te: time of the worker's clock, for display only.
            rejoin: whether it has taken over the slot of a dead worker, whose questions in this
                round are discarded; its speed is kept.
            members: ranks that take part in the rounds; the others are dead and ignored until they
                rejoin. None: no change.
            aside: whether rounds do not wait for this worker, according to an earlier answer. It
                may be rounds behind.
            exchange: seconds of its exchange, without the wait for others; None: not sent.

        Raises:
            InvalidError: unknown rank, negative or non-finite value.
            ConflictError: `round` is neither the job's round nor the next one, though rounds wait for
                this worker.
        """
        with self._lock:
            record = self._record(rank)
            count("t", round)
            seconds("te", te)
            if exchange is not None:
                seconds("exchange", exchange)
            present = None if members is None else {self._record(member).rank for member in members}
            division = self._division
            # Rounds may have passed without this worker, and messages about them may be late or lost.
            unawaited = division is not None and (aside or rejoin or rank in division.aside)
            skips = round > self._round + 1
            if (round < self._round and not (aside and unawaited)) or (skips and not unawaited):
                raise ConflictError(f"RESET for round {round} refused: the job is in round {self._round}")
            if present is not None:
                self._absent = [other for other in range(self.num_workers) if other not in present]
                self._ranking.forget()
            if rejoin:
                self._absent = [other for other in self._absent if other != rank]
                self._ranking.forget()
            elif round == record.round and not aside:
                return  # a repeated message
            # Others open that round: until its next RESET, rounds do not wait for this worker.
            premature = skips and any(other.rank != rank for other in self._awaited())
            aside = aside or premature
            if exchange is not None and self._chooser is not None:
                self._chooser.note_exchange(record, exchange, opens=round > self._round)
            if division is not None and aside != (rank in division.aside):
                (division.aside.add if aside else division.aside.discard)(rank)
                self._ranking.forget()
            if round > self._round and not premature:
                self._round = round
                for other in self._records:
                    if division is None or other.rank not in division.aside:
                        other.asked, other.ready = -1, False
                if self._chooser is not None:
                    self._chooser.choose(self._awaited(), self._present())
                    self.slowest_iterations = self._chooser.settings.iterations
                if division is not None:
                    self._divide(division)
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
        """Return everything that affects answers, for JSON."""
        with self._lock:
            state = {name: value for name, value in vars(self).items() if name not in UNSAVED}
            if self._tiering is not None:
                state["_tiering"] = self._tiering.flat
            for name, part in {"_division": self._division, "_chooser": self._chooser}.items():
                state[name] = None if part is None else part.state()
            return {**state, "_records": [asdict(record) for record in self._records]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Coordinator":
        """Return a coordinator with the state that `state` has returned."""
        tiering = TierSettings.of(state["_tiering"]) if "_tiering" in state else None
        self = cls(state["num_workers"], state["epsilon"], tiering=tiering)
        records = [Record(**fields) for fields in state["_records"]]
        saved = {name: state[name] for name in vars(self) if name in state and name not in UNSAVED}
        vars(self).update(saved, _records=records, _ranking=Ranking(records))
        if self._division is not None:
            self._division.restore(state["_division"])
        if self._chooser is not None:
            self._chooser.restore(state["_chooser"])
        return self

    # --- called with the lock held ----------------------------------------------------------------

    def _record(self, rank: int) -> Record:
        if not 0 <= rank < self.num_workers:
            raise InvalidError(f"unknown rank {rank}: this job has the ranks 0 to {self.num_workers - 1}")
        return self._records[rank]

    def _check_round(self, record: Record, round: int | None) -> None:
        """Raise ConflictError for a question from another round; `round` is the one that was sent."""
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
        division, rank, tier = self._division, record.rank, 0
        if division is not None:
            tier, out = division.tier(rank, self._absent), rank in division.left_out
            if (tier or out) and rank not in division.aside:
                if any(other.rank != rank for other in self._awaited()):
                    division.aside.add(rank)
                    self._ranking.forget()
                else:
                    tier, out = 0, False  # nobody else would open the next round
            if out:
                return ExchangeDecision(False, tier=tier, left_out=True, share=division.shares.get(rank, 0.0))
        decision = READY
        if not record.ready:
            aside = division.aside if division is not None else ()
            slowest = self._ranking.slowest({*self._absent, *aside} if aside else self._absent)
            how = decide_aside if rank in aside else decide
            decision = how(slowest, record, self._round, self.slowest_iterations, self._epsilon(record), now)
            record.ready = decision.ready
        if tier:
            decision = replace(decision, tier=tier)
        if self._chooser is None:
            return decision
        chosen = self._chooser.settings
        return replace(decision, iterations=chosen.iterations, compression=chosen.compression)

    def _divide(self, division: Division) -> None:
        division.update(self._records, self._absent, self._chooser.settings if self._chooser is not None else None)

    def _present(self) -> list[Record]:
        """Return the workers that are not dead, and not among those given to be left out."""
        left_out = self._tiering.leave_out if self._tiering is not None else None
        away = {*self._absent, *(left_out or ())}
        return [record for record in self._records if record.rank not in away]

    def _awaited(self) -> list[Record]:
        """Return the workers that rounds wait for."""
        away = {*self._absent, *(self._division.aside if self._division is not None else ())}
        return [record for record in self._records if record.rank not in away]

    def _news(self, record: Record, now: float, before: float) -> None:
        """Update the ranking after a new message; `before` is the worker's former capability."""
        self._last_progress = now
        aside = self._division is not None and record.rank in self._division.aside
        if record.capability != before and record.rank not in self._absent and not aside:
            self._ranking.add(record)

    def _epsilon(self, record: Record) -> float:
        return automatic_epsilon(record) if self.epsilon is None else self.epsilon


class RefusedError(ValueError):
    """A message was refused without effect; the text says what was expected."""


class InvalidError(RefusedError):
    """The message is never valid: an unknown rank, a value out of range."""


class ConflictError(RefusedError):
    """The message does not fit the present state: another round, no job, another job.

    `retry_after` is the number of seconds after which the message may be accepted; None: never.
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
