"""The state of rounds on a server: members, commits, and the end of the run; without arrays.

Plain Python, driven by calls that carry the time, so that the parameter server, a run on one device
and the simulator all count alike.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import wire
from .resume_negotiation import RunProgress, WholeCheckpointTracker
from .scalars import Scalars

#: Uses of commits (`wire.MESSAGE`) of workers that rounds do not wait for.
UNAWAITED = frozenset({wire.UNAWAITED, wire.BACK})
_IN_ROUNDS = UNAWAITED | {wire.TOGETHER}
#: Fields of the status that are attributes of the round state, of the run and of each slot.
OF_RUN = (
    "round", "version", "step", "samples", "samples_together", "rounds_together", "fastest", "elapsed", "exchanged_at",
    "job", "resume_at", "whole", "synchronous",
)  # fmt: skip
RECORDED = (*OF_RUN, "acknowledged", "used", "wait", "answer", "nonce", "arrivals", "member")


@dataclass(frozen=True)
class Limits:
    """The limits that end a run; infinite where there is no such limit.

    Attributes:
        rounds: communication rounds. Asynchronous workers share no rounds; there it is commits ÷
            workers.
        samples: training samples of all workers together.
        seconds: since all workers were there, checked whenever a round (asynchronous: a commit) is
            done.
    """

    rounds: float = math.inf
    samples: float = math.inf
    seconds: float = math.inf


@dataclass
class PendingCommit:
    """A commit that waits for the others of its round."""

    message: Any  # a wire.MESSAGE record
    arrived: float  # seconds, server clock


@dataclass
class RoundState:
    """The state of one run: how far it has come, and who takes part in it.

    Attributes:
        slots: number of worker slots (DMLC_NUM_WORKER).
        synchronous: whether a round waits for every member (True), or every commit counts at once
            (False). Where a commit says how it is to be used, that holds; this is then how the next
            ones should be used.
        round: rounds completed, and commits that were applied at once ÷ slots, rounded down.
        step: times that the weights have changed: once per round, or once per commit that was
            applied at once.
        version: commits that have gone into the weights.
        samples: training samples behind them.
        samples_together: those of them whose commits were used together, as rounds.
        rounds_together: number of those rounds.
        resume_at: the round of the checkpoint that the run goes on from; −1: from the beginning.
        stop_at: the run is over when `round` reaches it; None while that is not known.
        failure: why the run was aborted; "" while it was not.
        notice: a warning to all workers at the start, for which nothing ends.
        elapsed: seconds from the last worker's handshake to the last commit.
        exchanged_at: `elapsed` when the weights last changed. Unlike `elapsed`, which goes on when
            a replacement comes, it stays as it is from the end of one round to that of the next.
        staleness: commits that a worker may be ahead of the slowest member (stale synchronous
            parallel): one that was applied at once is acknowledged when its worker may go on.
        released: commits whose acknowledgement has had to wait for that.
        decides: whether this server decides when the run ends; the others use commits for as long
            as workers send them.
        added: name of each scalar that commits have beside the built-in ones → how it is combined;
            see `scalars`.
        excluded: array of slots: members that rounds do not wait for, as the leader has asked.
        aside: likewise, as each of them has said itself. Their commits wait until a round takes
            them in.
        resting: array of slots: those of them that sent nothing either when the newest round ended.
            It stays until the next one ends, so that all workers of a round read the same.
        contributed: ranks whose commits have gone into the weights.
        left: ranks that have said goodbye.
        awaited: ranks that are gone without a goodbye, and that somebody has promised to replace.
    """

    slots: int
    synchronous: bool
    limits: Limits = field(default_factory=Limits)
    round: int = 0
    version: int = 0
    step: int = 0
    samples: int = 0
    samples_together: int = 0
    rounds_together: int = 0
    resume_at: int = -1
    stop_at: int | None = None
    failure: str = ""
    notice: str = ""
    exchanged_at: float = 0.0
    staleness: float = math.inf
    released: int = 0
    decides: bool = True
    added: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.limits.rounds < math.inf:
            self.stop_at = int(self.limits.rounds)
        self.nonce = np.zeros(self.slots, np.int64)  # who holds a slot; 0: nobody
        self.job = 0
        self.arrivals = np.zeros(self.slots, np.int32)
        self.member = np.zeros(self.slots, bool)
        self.excluded = np.zeros(self.slots, bool)  # members that rounds do not wait for
        self.aside = np.zeros(self.slots, bool)  # members that have said themselves that rounds need not wait
        self._resting = np.zeros(self.slots, bool)  # those of them that send nothing either
        self.resting = np.zeros(self.slots, bool)
        self.acknowledged = np.zeros(self.slots, np.int64)
        self._before = np.zeros(self.slots, np.int64)  # commits of a slot before the job began, by its checkpoint
        self.used = np.zeros(self.slots, np.int32)  # TOGETHER or AT_ONCE; 0: not at all
        self.wait = np.zeros(self.slots)
        self.answer = np.zeros(self.slots, np.int64)
        self.scalars = Scalars(self.added, self.slots)
        self._round: tuple[int, ...] | None = None  # ranks of the newest round, where it was one of several workers
        self._checkpoint = WholeCheckpointTracker()
        self._combined: dict[str, float] | None = None
        self.pending: dict[int, PendingCommit] = {}
        self._held: set[int] = set()  # ranks whose pending commit is applied already
        self._now = 0.0
        self._at_once = 0  # commits that were applied one by one
        self._started: float | None = None
        self.elapsed = 0.0
        self.contributed: set[int] = set()
        self.left: set[int] = set()
        self.awaited: set[int] = set()
        self._said_goodbye = False  # whether the last worker that is gone has said goodbye
        self._end_known = False  # whether a worker has left because the run is finished
        # After a switch the workers know different numbers of samples, and a schedule may step
        # between these: so the rates of their first round together are not compared.
        self._compared = True

    @property
    def started(self) -> bool:
        """Whether all workers have been there."""
        return self._started is not None

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end (not whether it was successful)."""
        return bool(self.failure) or (self.stop_at is not None and self.round >= self.stop_at)

    @property
    def counted(self) -> np.ndarray:
        """Array of slots: whether rounds wait for the slot's worker.

        Where all members have stepped aside, because the others are gone, they wait for the first
        that still sends updates.
        """
        counted = self.member & ~self.excluded
        if not self.aside.any():
            return counted
        counted &= ~self.aside
        if not counted.any():
            counted[np.flatnonzero(self.member & ~self._resting)[:1]] = True
        return counted

    @property
    def needed(self) -> tuple[int, ...]:
        """Ranks whose parts a checkpoint written now needs.

        They are those that took part in the newest round. Where commits are used at once, it is
        rank 0 alone, which has the model.
        """
        if self._round is not None:
            return self._round
        needed = self._checkpoint.needed or range(self.slots if self.synchronous else 1)
        return tuple(rank for rank in needed if self.member[rank])

    @property
    def whole(self) -> int:
        """Round of the newest checkpoint that is known to be whole; 0: none."""
        return max(self._checkpoint.round, self.resume_at)

    @property
    def fastest(self) -> float:
        """Seconds of an iteration on the fastest worker; 0 where none has sent them."""
        pace = self.combined_scalars["pace"]
        return 0.0 if math.isnan(pace) else pace

    @property
    def combined_scalars(self) -> dict[str, float]:
        """The combined scalars of the newest round.

        Where commits are used at once, they are those of all members' latest. A scalar that no
        worker has sent is NaN. They stay as they are from the end of one round to that of the next.
        """
        if self._combined is None:
            self._combined = self.scalars.combined(list(self._round or np.flatnonzero(self.member)))
        return self._combined

    @property
    def added_scalars(self) -> dict[str, float]:
        """The combined values of those added scalars that some worker has sent."""
        return {name: self.combined_scalars[name] for name in self.added if not math.isnan(self.combined_scalars[name])}

    @property
    def over(self) -> bool:
        """Whether the run is over: it has come to its end, or the last worker has said goodbye.

        One server decides when the run ends; the others hear of it from the first worker that
        leaves because of that.
        """
        return self.finished or self._end_known or (self._said_goodbye and not self.member.any())

    @property
    def can_exit(self) -> bool:
        """Whether this server can end.

        It can when the run is over, all workers are gone, and no replacement is promised.
        """
        return self.over and not self.member.any() and not self.awaited

    def commits_of(self, rank: int) -> int:
        """Return the number of commits of this slot that have been dealt with so far."""
        return int(self.pending[rank].message["sequence"]) if rank in self._held else int(self.acknowledged[rank])

    def join(self, rank: int, nonce: int, now: float) -> None:
        """Let a worker take its slot, or that of a dead one, whose commits still count."""
        self._now = now
        if rank in self._held:
            self._release_one(rank, now)  # it takes the weights as they are now, whatever it is told
        self._withdraw(rank)
        self.aside[rank] = self._resting[rank] = False
        if self.nonce[rank] != nonce:
            self.arrivals[rank] += 1
            self._checkpoint.joined(rank)
        self.nonce[rank] = nonce
        self.member[rank] = True
        self._combined = None
        self.left.discard(rank)
        self.awaited.discard(rank)
        if rank == 0 and not self.job:
            self.job = nonce
        if self._started is None and self.member.all():
            self._started = now
        elif self._started is not None:
            self.elapsed = now - self._started  # for a replacement's clock

    def resume_slot(self, rank: int, exchanges: int) -> None:
        """Let a worker go on from a checkpoint.

        How far workers are ahead of one another counts from there: a part may be missing, or older
        than the others'.

        Args:
            rank: its slot.
            exchanges: commits of this slot before that checkpoint.
        """
        self.acknowledged[rank] = self._before[rank] = exchanges

    def resume(self, progress: RunProgress, now: float) -> None:
        """Go on from where an earlier job was; limits count from the beginning of the whole run."""
        self.round, self.version, self.samples = progress.round, progress.version, progress.samples
        self.step = progress.step
        self.rounds_together, self._at_once = progress.round, progress.version % self.slots
        if progress.synchronous is not None:
            self.synchronous = progress.synchronous
        self.samples_together = progress.samples_together
        self.elapsed = self.exchanged_at = progress.elapsed
        self._started = now - progress.elapsed
        self._check_limits()

    def leave(self, rank: int, done: bool = False) -> None:
        """Let a worker leave; the others' rounds no longer wait for it.

        The goodbye of one that was dropped is ignored: it is not known whether it has done its
        work.

        Args:
            rank: its slot.
            done: whether it leaves because it has been told that the run is finished.
        """
        if self.member[rank]:
            self.left.add(rank)
            self._end_known = self._end_known or done
            self._remove(rank, goodbye=True)
            if self._end_known and (rest := [rank for rank in self.pending if self._unawaited(rank)]):
                self._acknowledge(rest, self._now)
                self.released += len(rest)

    def drop(self, rank: int) -> None:
        """Go on without a worker that is gone without a goodbye; another one may take its slot.

        An unawaited commit that no round has taken in yet is void.
        """
        if self.member[rank]:
            self._withdraw(rank)
            self._remove(rank, goodbye=False)

    def step_aside(self, message: Any) -> None:
        """Have rounds not wait for a worker any more, which has said so (wire.ASIDE).

        Messages may overtake one another: one from before the newest commit that was dealt with is
        ignored. The field "place" is 1 where the worker sends nothing more, until it says BACK.
        """
        rank = int(message["rank"])
        if message["sequence"] >= self.acknowledged[rank]:
            self.aside[rank], self._resting[rank] = True, bool(message["place"])

    def commit(self, message: Any, now: float) -> list[int]:
        """Note a commit whose payload is complete.

        Commits that are used together must have the same learning rate, momentum and weight decay:
        otherwise the run is aborted. A commit of a worker that the rounds have gone on without may
        be rounds behind: it is not used. Neither is one for a round that has ended here, where
        other servers still wait for it. A commit that counts at once is used after the end of the
        run, too, on servers that do not decide when that is: they count commits in another order,
        and perhaps others, so the one that decides may still use it.

        Returns:
            The ranks whose commits are to be applied now, in this order: all of the round once the
            last member has committed (synchronous), this one (asynchronous), nobody yet, or nobody
            because the commit is only to be acknowledged or the run is over.
        """
        rank, together = int(message["rank"]), self.together(message)
        if unawaited := int(message["use"]) in UNAWAITED:
            self.aside[rank], self._resting[rank] = True, False
        other = next(iter(self.pending.values()), None)
        self.pending[rank] = PendingCommit(message, now)
        self._now = now
        late = together and (not self.member[rank] or 0 < int(message["round"]) <= self.rounds_together)
        ended = bool(self.failure) or (self.finished and (self.decides or together)) or (unawaited and self._end_known)
        if ended or message["use"] == wire.DISCARD or late:
            self._acknowledge([rank], now)
            self._release(now)
            return []
        if together and self._compared and other is not None:
            self.failure = self.scalars.disagreement(message, other.message, self.round + 1)
            if self.failure:
                return []
        return self.due() if together else [rank]

    def due(self) -> list[int]:
        """Return the ranks whose commits are to be applied together now.

        There are none while a member is missing. Of unawaited commits, only those are used that the
        leader's commit names, so that all servers use them in the same round.
        """
        counted = self.counted
        if len(self.pending) < np.count_nonzero(counted):
            return []  # the usual case; what follows costs more the more workers there are
        members = set(np.flatnonzero(counted).tolist())
        if not (self.pending and members <= set(self.pending)):
            return []
        if not self.aside.any():
            return sorted(self.pending)
        named = wire.decode_ranks(self.pending[min(members)].message["includes"]) if members else None
        used = members | (named or set())
        return sorted(rank for rank in self.pending if rank in used or not self._unawaited(rank))

    def waits_for(self, rank: int) -> bool:
        """Return whether others have committed in a round that cannot end without this worker."""
        return bool(self.counted[rank]) and rank not in self.pending and bool(self.pending.keys() - self._held)

    def follow(self, message: Any) -> None:
        """Take over which workers the round under way does not wait for.

        Messages about other rounds are ignored.
        """
        if message["round"] == self.rounds_together + 1:
            self._set_excluded(wire.decode_ranks(message["text"]) or ())

    def together(self, message: Any) -> bool:
        """Return whether a commit waits for those of the other members."""
        use = int(message["use"])
        return self.synchronous if use == wire.AS_AGREED else use in _IN_ROUNDS

    def applied(self, ranks: list[int], now: float) -> None:
        """Acknowledge commits that have gone into the weights, and count the round.

        Then check whether the run ends. Where the leader, the first of those that rounds wait for,
        has asked for it, the next ones are used in another way or wait for others: nobody has been
        told of the end of this round yet, so all workers learn both at the same time. Of commits
        that are used at once, every member's may ask for the way back to rounds.
        """
        messages = [self.pending[rank].message for rank in ranks]
        self._compared = together = self.together(messages[0])
        leader = int(np.argmax(self.counted)) if together else None
        self.version += len(ranks)
        self.contributed.update(ranks)
        samples = sum(int(message["samples"]) for message in messages)
        self.samples += samples
        if together:
            self.samples_together += samples
            self.rounds_together += 1
            self.resting = self.member & self._resting
            self.synchronous = True  # also where the commit that has asked for it has reached other servers only
            self.step += 1
        else:
            self._at_once += len(ranks)
            self.step += len(ranks)
        self.round = self.rounds_together + self._at_once // self.slots
        self.scalars.note(messages)
        self._round, self._combined = tuple(ranks) if together else None, None
        for rank, message in zip(ranks, messages, strict=True):
            if message["use"] == wire.BACK:
                self.aside[rank] = False
        parts = {rank: int(message["part"]) for rank, message in zip(ranks, messages, strict=True)}
        self._checkpoint.used(parts, self.round, together)
        for message in messages:
            if (message["rank"] == leader) if together else self.member[int(message["rank"])]:
                self._take_wishes(message)
        if self.staleness < math.inf and not together:
            self._held.update(ranks)
            self._update_elapsed(now)
        else:
            self._acknowledge(ranks, now, wire.TOGETHER if together else wire.AT_ONCE)
        self.exchanged_at = self.elapsed
        if self.decides or not together:
            self._check_limits()
        self._release(now)
        # The run may end with a commit that is used at once while others already wait for a round.
        # It will not come, and a round of the remaining workers alone would use learning rates that
        # are meant for the mean of all.
        if self.finished and self.pending:
            self._acknowledge(list(self.pending), now)

    def count(self, samples: int, now: float) -> None:
        """Count a round of a run on one device; after the end of the run it is ignored."""
        if due := self.commit(wire.message(wire.COMMIT, samples=samples), now):
            self.applied(due, now)

    def stop(self) -> None:
        """End the run cleanly: after the round under way, or at once where there are no rounds."""
        self._stop_by(self.round + 1 if self.synchronous else self.round)

    def abort(self, reason: str) -> None:
        """End the run now; the first reason stays."""
        self.failure = self.failure or reason or "no reason was given"

    def status(self) -> np.ndarray:
        """Return the record that the workers pull (wire.status_type)."""
        record = np.zeros((), wire.status_type(self.slots, self.added))
        for name in RECORDED:
            record[name] = getattr(self, name)
        record["stop_at"] = -1 if self.stop_at is None else self.stop_at
        record["aborted"] = bool(self.failure)
        record["text"] = wire.encode_text(self.failure or self.notice)
        record["excluded"] = self.member & self.excluded
        record["aside"] = (self.member & self.aside) + 2 * self.resting
        record["needed"][list(self.needed)] = 1
        record["committed"][list(self.pending)] = 1
        for name in self.added:
            record["scalars"][name] = self.combined_scalars[name]
        return record

    def _take_wishes(self, message: Any) -> None:
        """Use the next commits as this one asks for; see `applied` for whose requests count."""
        if message["switch"] != wire.AS_AGREED:
            self.synchronous = bool(message["switch"] == wire.TOGETHER)
        ranks = wire.decode_ranks(message["text"])
        if not self.synchronous:
            self.excluded[:] = False
        elif ranks is not None and self.together(message):
            self._set_excluded(ranks)

    def _set_excluded(self, ranks: Collection[int]) -> None:
        excluded = np.isin(np.arange(self.slots), list(ranks))
        if (self.member & ~excluded).any():  # else nobody would lead
            self.excluded = excluded

    def _unawaited(self, rank: int) -> bool:
        """Return whether the pending commit of a rank waits until a round's leader names it."""
        return int(self.pending[rank].message["use"]) in UNAWAITED

    def _withdraw(self, rank: int) -> None:
        """Forget the unawaited commit of a worker that is gone."""
        if rank in self.pending and self._unawaited(rank):
            del self.pending[rank]

    def _remove(self, rank: int, goodbye: bool) -> None:
        self.member[rank] = False
        self._said_goodbye = goodbye
        self._combined = None
        self._release(self._now)

    def _acknowledge(self, ranks: list[int], now: float, used: int = 0) -> None:
        last = max(self.pending[rank].arrived for rank in ranks)
        for rank in ranks:
            done = self.pending.pop(rank)
            self.acknowledged[rank] = int(done.message["sequence"])
            self.wait[rank] = last - done.arrived
            self.used[rank] = used
        self._update_elapsed(now)

    def _update_elapsed(self, now: float) -> None:
        if self._started is not None:
            self.elapsed = now - self._started

    def _release(self, now: float) -> None:
        """Acknowledge the held commits of workers that are not too far ahead of the slowest member.

        When the run is over, acknowledge all of them.
        """
        if not self._held:
            return
        slowest = min((self._progress(rank) for rank in np.flatnonzero(self.member).tolist()), default=math.inf)
        for rank in sorted(self._held):
            if self.finished or self._progress(rank) - slowest <= self.staleness:
                self._release_one(rank, now)

    def _progress(self, rank: int) -> int:
        """Return the number of commits of this slot that were dealt with since the job began."""
        return self.commits_of(rank) - int(self._before[rank])

    def _release_one(self, rank: int, now: float) -> None:
        self._held.discard(rank)
        waited = now - self.pending[rank].arrived
        self._acknowledge([rank], now, wire.AT_ONCE)
        self.wait[rank] = waited
        self.released += waited > 0

    def _check_limits(self) -> None:
        if self.samples >= self.limits.samples or self.elapsed >= self.limits.seconds:
            self._stop_by(self.round)

    def _stop_by(self, round_: int) -> None:
        self.stop_at = round_ if self.stop_at is None else min(self.stop_at, round_)
