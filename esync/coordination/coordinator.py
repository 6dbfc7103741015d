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

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from .. import config
from .automatic_settings import SettingsChooser
from .decision import NOT_READY, READY, ExchangeDecision, automatic_epsilon, decide
from .records import Record
from .tier_settings import TierSettings
from .tiers import Division, decide_aside


@dataclass
class Coordinator:
    """The records of one job, and the answers to its workers; thread-safe.

    Its fields are all that affects later answers; the first four are given.

    Attributes:
        num_workers: number of workers.
        epsilon: seconds. A worker is READY if the slowest one finishes earlier than one iteration
            of the worker, plus the round trip of a question if known, plus epsilon. None: chosen
            for each worker from the fluctuations of its iterations and round trips.
        slowest_iterations: local iterations of the slowest worker per round; 1 in the paper.
        tiering: settings for the division into tiers, and for what is chosen for each round; None: all
            workers are in the first tier, and nothing is chosen.
        round: the job's round.
        records: of the workers, by rank.
        absent: ranks that do not take part, because their workers are dead.
        division: the division of the workers into tiers; None: all are in the first one.
        chooser: chooses settings for each round; None: they are given.
        last_progress: time of the newest message, except duplicates and refused ones; None: there is none.

    Raises:
        InvalidError: the tiers do not fit the number of workers.
    """

    num_workers: int
    epsilon: float | None
    slowest_iterations: int = config.SLOWEST_ITERATIONS
    tiering: TierSettings | None = None
    round: int = 1
    records: list[Record] = field(default_factory=list)
    absent: frozenset[int] = frozenset()
    division: Division | None = None
    chooser: SettingsChooser | None = None
    last_progress: float | None = None

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._slowest: Record | None = None  # of the workers that rounds wait for; None: it is to be determined
        if self.records:
            return
        self.records = [Record(rank) for rank in range(self.num_workers)]
        if (tiering := self.tiering) is not None:
            try:
                tiering.check(self.num_workers)
            except ValueError as error:
                raise InvalidError(str(error)) from None
            self.division = Division.of(tiering, self.num_workers) if tiering.divides else None
            if tiering.exchange_share is not None:
                self.chooser = SettingsChooser.of(tiering, self.slowest_iterations)

    @property
    def slowest_capability(self) -> float:
        """Smoothed seconds per iteration of the slowest participating worker; 0 while unknown."""
        with self._lock:
            return max((record.capability for record in self.records if record.rank not in self.absent), default=0.0)

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
        """Answer QUERY-STATE.

        A worker that keeps leases may have done several iterations since its last question; a published
        one asks after every iteration. A repeated question is answered anew. The answer may change from
        NOT-READY to READY, but not back before the next round.

        Args:
            rank: of the worker that asks.
            round: the round that it is in; None: not sent (published workers).
            iteration: local iterations that it has done in this round (k); 0 never gets READY.
            capability: mean seconds of its iterations since its last question (c), without the time of
                questions and exchanges, not smoothed; 0 for unknown.
            now: the coordinator's time, seconds.
            round_trip: seconds that its newest answered question took; None where it does not say.
            te: time of the worker's clock at the end of its last iteration, for display only.

        Raises:
            InvalidError: unknown rank.
            ConflictError: the worker is in another round than the job, or is a published one in a job
                with tiers, of which its answer could not tell.
        """
        with self._lock:
            record = self._record(rank)
            if round is None and self.division is not None:
                raise ConflictError(
                    "this job divides its workers into tiers (mode tiered), of which the published question knows "
                    "nothing: start this worker with the same version of ESync as the others"
                )
            self._check_round(record, round)
            if iteration > record.asked:
                iterations = max(1, iteration - max(record.asked, 0))
                if round_trip is not None:
                    record.delayed(iteration, capability, now, iterations, round_trip)
                before, measured = record.capability, record.measured
                record.add_report(iteration, capability, now, iterations)
                record.te = te
                self._news(record, now, before)
                if self.division is not None and (rank in self.division.aside or not measured):
                    self._divide(self.division)
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
            InvalidError: unknown rank.
            ConflictError: `round` is neither the job's round nor the next one, though rounds wait for
                this worker.
        """
        with self._lock:
            record = self._record(rank)
            present = None if members is None else {self._record(member).rank for member in members}
            division = self.division
            # Rounds may have passed without this worker, and messages about them may be late or lost.
            unawaited = division is not None and (aside or rejoin or rank in division.aside)
            skips = round > self.round + 1
            if (round < self.round and not (aside and unawaited)) or (skips and not unawaited):
                raise ConflictError(f"RESET for round {round} refused: the job is in round {self.round}")
            if present is not None:
                self.absent = frozenset(range(self.num_workers)) - present
                self._slowest = None
            if rejoin:
                self.absent -= {rank}
                self._slowest = None
            elif round == record.round and not aside:
                return  # a repeated message
            # Others open that round: until its next RESET, rounds do not wait for this worker.
            premature = skips and any(other.rank != rank for other in self._awaited())
            aside = aside or premature
            if exchange is not None and (chooser := self.chooser) is not None:
                # The worker that opens the round has exchanged with the present settings.
                opens = round > self.round
                record.add_exchange(exchange, chooser.settings.compression if opens else chooser.earlier_compression)
            if division is not None and aside != (rank in division.aside):
                (division.aside.add if aside else division.aside.discard)(rank)
                self._slowest = None
            if round > self.round and not premature:
                self.round = round
                for other in self.records:
                    if division is None or other.rank not in division.aside:
                        other.asked, other.ready = -1, False
                if self.chooser is not None:
                    self.chooser.choose(self._awaited(), self._present())
                    self.slowest_iterations = self.chooser.settings.iterations
                if division is not None:
                    self._divide(division)
            record.round, record.asked, record.ready = round, -1, False
            record.finished = now
            record.te = te
            self.last_progress = now

    def snapshot(self) -> dict[str, Any]:
        """Return the job as GET / shows it; `records` are lists [rank, k, c, te, ready, round].

        `epsilon` is the given value, or the largest of `epsilons`, which has one for each rank.
        """
        with self._lock:
            epsilons = [self._epsilon(record) for record in self.records]
            return {
                "num_workers": self.num_workers,
                "t": self.round,
                "epsilon": max(epsilons),
                "epsilons": epsilons,
                "slowest_iterations": self.slowest_iterations,
                "records": [[r.rank, max(r.asked, 0), r.capability, r.te, r.ready, r.round] for r in self.records],
            }

    # --- called with the lock held ----------------------------------------------------------------

    def _record(self, rank: int) -> Record:
        if not 0 <= rank < self.num_workers:
            raise InvalidError(f"unknown rank {rank}: this job has the ranks 0 to {self.num_workers - 1}")
        return self.records[rank]

    def _check_round(self, record: Record, round: int | None) -> None:
        """Raise ConflictError for a question from another round; `round` is the one that was sent."""
        if self.division is not None and record.rank in self.division.aside:
            return
        if record.round != self.round or round not in (None, self.round):
            raise ConflictError(
                f"rank {record.rank} asks in round {record.round if round is None else round}, but the job is in round "
                f"{self.round} and this rank's last RESET was for round {record.round}"
            )

    def _answer(self, record: Record, iteration: int, now: float) -> ExchangeDecision:
        if iteration < record.asked:
            return NOT_READY  # overtaken by a newer question, so the answer must have been NOT-READY
        division, rank, tier = self.division, record.rank, 0
        if division is not None:
            tier, out = division.tier(rank, self.absent), rank in division.left_out
            if (tier or out) and rank not in division.aside:
                if any(other.rank != rank for other in self._awaited()):
                    division.aside.add(rank)
                    self._slowest = None
                else:
                    tier, out = 0, False  # nobody else would open the next round
            if out:
                return ExchangeDecision(False, tier=tier, left_out=True, share=division.shares.get(rank, 0.0))
        decision = READY
        if not record.ready:
            how = decide_aside if division is not None and rank in division.aside else decide
            epsilon = self._epsilon(record)
            decision = how(self._slowest_awaited(), record, self.round, self.slowest_iterations, epsilon, now)
            record.ready = decision.ready
        if tier:
            decision = replace(decision, tier=tier)
        if self.chooser is None:
            return decision
        chosen = self.chooser.settings
        return replace(decision, iterations=chosen.iterations, compression=chosen.compression)

    def _divide(self, division: Division) -> None:
        division.update(self.records, self.absent, self.chooser.settings if self.chooser is not None else None)

    def _present(self) -> list[Record]:
        """Return the workers that are not dead, and not among those given to be left out."""
        left_out = self.tiering.leave_out if self.tiering is not None else None
        away = {*self.absent, *(left_out or ())}
        return [record for record in self.records if record.rank not in away]

    def _awaited(self) -> list[Record]:
        """Return the workers that rounds wait for."""
        away = {*self.absent, *(self.division.aside if self.division is not None else ())}
        return [record for record in self.records if record.rank not in away]

    def _slowest_awaited(self) -> Record:
        """Return the slowest worker that rounds wait for, of any where they wait for none.

        Looking through the records of a thousand workers would cost more than the rest of an answer.
        """
        if self._slowest is None:
            self._slowest = max(self._awaited() or self.records, key=_slowness)
        return self._slowest

    def _news(self, record: Record, now: float, before: float) -> None:
        """Note a new message; `before` is the worker's former capability."""
        self.last_progress = now
        slowest = self._slowest
        if slowest is None or record.capability == before:
            return
        if record is slowest or _slowness(record) > _slowness(slowest):
            self._slowest = None

    def _epsilon(self, record: Record) -> float:
        return automatic_epsilon(record) if self.epsilon is None else self.epsilon


def _slowness(record: Record) -> tuple[float, int]:
    """Return what is largest for the slowest worker, the one of the lowest rank among equals."""
    return record.speed_rank, -record.rank


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
