"""The progress of a run on a server: members, commits, rounds, and the end of the run.

Callers pass the time to each method, so the parameter server, runs on one device and the simulator
share this code. Payloads are kept elsewhere, see `payload_staging`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import wire
from .resume_negotiation import RunProgress, WholeCheckpointTracker
from .scalars import Scalars
from .staleness import StalenessBound

#: Uses of the commits (`wire.MESSAGE`) of workers that are aside.
UNAWAITED_USES = frozenset({wire.UNAWAITED, wire.BACK})
_IN_ROUNDS = UNAWAITED_USES | {wire.TOGETHER}


@dataclass(frozen=True)
class Limits:
    """The limits that end a run; infinite if there is no such limit.

    Attributes:
        rounds: communication rounds; in asynchronous modes, commits ÷ workers.
        samples: training samples of all workers together.
        seconds: since the last worker's handshake, checked at the end of every round
            (asynchronous: of every commit).
    """

    rounds: float = math.inf
    samples: float = math.inf
    seconds: float = math.inf


@dataclass
class PendingCommit:
    """A commit that has not been acknowledged yet.

    Attributes:
        message: the commit (wire.MESSAGE).
        arrived: when its payload was complete, in seconds of the server's clock.
    """

    message: Any
    arrived: float


@dataclass
class RoundState:
    """The progress and the members of one run.

    Attributes:
        slots: number of worker slots (DMLC_NUM_WORKER).
        synchronous: whether the next commits should be used together, in rounds that wait for every
            member, or each of them at once. A commit whose "use" is not AS_AGREED overrides it.
        round: rounds completed, plus commits applied at once ÷ slots, rounded down.
        step: number of changes of the weights: one per round, or per commit applied at once.
        version: commits that have been applied to the weights.
        samples: training samples of these commits.
        samples_together: samples of those of them that were used together, in rounds.
        rounds_together: number of times that commits were used together: in rounds, or in parts of
            one, if several optimizers step in turn.
        resume_at: round of the checkpoint that the run resumes from; −1: it starts from scratch.
        stop_at: the run ends when `round` reaches it; None: not known yet.
        failure: why the run was aborted; "": it was not.
        notice: a warning to all workers at the start.
        elapsed: seconds from the last worker's handshake to the last commit.
        exchanged_at: `elapsed` when the weights last changed. Unlike `elapsed`, it does not change
            when a replacement joins.
        staleness: commits that a worker may be ahead of the slowest member (stale synchronous
            parallel). A commit applied at once is acknowledged when its worker may continue.
        released: number of commits whose acknowledgement was delayed for that reason.
        decides: whether this server decides when the run ends. The others use commits for as long
            as workers send them.
        added: name of each scalar that commits have beside the built-in ones → how it is combined;
            see `scalars`.
        excluded: array of slots: members that rounds do not wait for at the leader's request.
        aside: array of slots: members that rounds do not wait for at their own request. Their
            commits wait until a round includes them.
        resting: array of slots: members aside that did not send commits either when the newest
            round ended. It changes at the end of rounds only, so all workers of a round read the
            same.
        contributed: ranks whose commits have been applied to the weights.
        left: ranks that have left with a goodbye (wire.LEAVE or wire.DONE).
        promised: ranks that are gone without a goodbye, and whose replacement is promised.
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
        self.nonce = np.zeros(self.slots, np.int64)  # of the process that holds a slot; 0: none
        self.job = 0
        self.arrivals = np.zeros(self.slots, np.int32)
        self.member = np.zeros(self.slots, bool)
        self.excluded = np.zeros(self.slots, bool)
        self.aside = np.zeros(self.slots, bool)
        self._resting = np.zeros(self.slots, bool)  # members aside that send no commits at present
        self.resting = np.zeros(self.slots, bool)
        self.acknowledged = np.zeros(self.slots, np.int64)
        self.used = np.zeros(self.slots, np.int32)  # TOGETHER or AT_ONCE; 0: not at all
        self.wait = np.zeros(self.slots)
        self.answer = np.zeros(self.slots, np.int64)
        self.scalars = Scalars(self.added, self.slots)
        self._round: tuple[int, ...] | None = None  # ranks of the newest round; None: commits are used at once
        self._needed: tuple[int, ...] = ()  # those of them that the next round waits for
        self._checkpoint = WholeCheckpointTracker()
        self._combined: dict[str, float] | None = None
        self.pending: dict[int, PendingCommit] = {}
        self._bound = StalenessBound(self.staleness, self.slots)
        self._now = 0.0
        self._at_once = 0  # commits that were applied one by one
        self._position = 0  # of the newest commits, 0 where a round begins; see wire.MESSAGE
        self._unfinished = 0  # commits used together after which their round went on
        self._started: float | None = None
        self.elapsed = 0.0
        self.contributed: set[int] = set()
        self.left: set[int] = set()
        self.promised: set[int] = set()
        self._last_left_cleanly = False  # whether the last worker that went sent a goodbye
        self._finish_reported = False  # whether a worker has left because the run is finished
        # After a switch the workers know different numbers of samples, and a learning rate schedule
        # may step between these. So the rates of the first round after it are not compared.
        self._compared = True

    @property
    def started(self) -> bool:
        """Whether all slots have been taken at the same time."""
        return self._started is not None

    @property
    def finished(self) -> bool:
        """Whether the run has ended, successfully or not."""
        return bool(self.failure) or (self.stop_at is not None and self.round >= self.stop_at)

    @property
    def counted(self) -> np.ndarray:
        """Array of slots: whether rounds wait for the slot's worker.

        If all remaining members are aside, rounds wait for the first one that sends commits.
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

        These are the ranks of the newest round that the next one waits for, too, and rank 0 at the
        end of the run. If commits are used at once, it is rank 0 alone, which has the model.
        """
        if self._round is not None:
            last = self.finished and 0 not in self._needed and (self.member[0] or 0 in self.left)
            return (0, *self._needed) if last else self._needed
        needed = self._checkpoint.needed or range(self.slots if self.synchronous else 1)
        return tuple(rank for rank in needed if self.member[rank])

    @property
    def whole(self) -> int:
        """Round of the newest checkpoint known to be complete; 0: none."""
        return max(self._checkpoint.round, self.resume_at)

    @property
    def fastest(self) -> float:
        """Seconds of an iteration on the fastest worker; 0: no worker has sent them."""
        pace = self.combined_scalars["pace"]
        return 0.0 if math.isnan(pace) else pace

    @property
    def combined_scalars(self) -> dict[str, float]:
        """The combined scalars of the newest round.

        If commits are used at once, they are combined from the latest commits of all members. A
        scalar that no worker has sent is NaN.
        """
        if self._combined is None:
            self._combined = self.scalars.combined(list(self._round or np.flatnonzero(self.member)))
        return self._combined

    @property
    def added_scalars(self) -> dict[str, float]:
        """The combined values of the added scalars that any worker has sent."""
        return {name: self.combined_scalars[name] for name in self.added if not math.isnan(self.combined_scalars[name])}

    @property
    def over(self) -> bool:
        """Whether the run has ended, or the last worker has left with a goodbye.

        Servers that do not decide when the run ends learn it from the first worker that leaves with
        wire.DONE.
        """
        return self.finished or self._finish_reported or (self._last_left_cleanly and not self.member.any())

    @property
    def can_exit(self) -> bool:
        """Whether this server may exit: the run is over, no worker is left, and none is promised."""
        return self.over and not self.member.any() and not self.promised

    def join(self, rank: int, nonce: int, now: float) -> None:
        """Let a worker take a free slot, or that of a dead worker, whose commits still count.

        Rounds do not wait for it if they did not wait for the dead one.
        """
        self._now = now
        if rank in self._bound.held:
            self._release_commit(rank, now)  # the worker begins with the present weights anyway
        if self.nonce[rank] != nonce:
            self.arrivals[rank] += 1
            self._checkpoint.joined(rank)
        self.nonce[rank] = nonce
        self.member[rank] = True
        self._combined = None
        self.left.discard(rank)
        self.promised.discard(rank)
        if rank == 0 and not self.job:
            self.job = nonce
        if self._started is None and self.member.all():
            self._started = now
        elif self._started is not None:
            self.elapsed = now - self._started  # for a replacement's clock

    def resume_slot(self, rank: int, exchanges: int) -> None:
        """Set the number of commits of a slot to that of its checkpoint.

        Args:
            rank: the slot.
            exchanges: commits of this slot before the checkpoint.
        """
        self.acknowledged[rank] = exchanges
        self._bound.count_from(rank, exchanges)

    def resume(self, progress: RunProgress, now: float) -> None:
        """Resume the progress of an earlier job; limits count from the start of the first one."""
        self.round, self.version, self.samples = progress.round, progress.version, progress.samples
        self.step = progress.step
        self.rounds_together, self._at_once = progress.round, progress.version % self.slots
        if progress.synchronous is not None:
            self.synchronous = progress.synchronous
        self.samples_together = progress.samples_together
        self.scalars.resume(progress.scalars)
        self._combined = None
        for flags in (self.aside, self._resting, self.resting):
            flags[list(progress.resting)] = True
        self.elapsed = self.exchanged_at = progress.elapsed
        self._started = now - progress.elapsed
        self._check_limits()

    def leave(self, rank: int, done: bool = False) -> None:
        """Let a worker leave; rounds no longer wait for it.

        The goodbye of a worker that was dropped is ignored, because its work may be incomplete.

        Args:
            rank: its slot.
            done: whether it leaves because the run is finished.
        """
        if self.member[rank]:
            self.left.add(rank)
            self._finish_reported = self._finish_reported or done
            self._remove(rank, goodbye=True)
            if self._finish_reported and (rest := [rank for rank in self.pending if self.holds_back(rank)]):
                self._acknowledge(rest, self._now)
                self.released += len(rest)

    def drop(self, rank: int) -> None:
        """Go on without a worker that is gone without a goodbye; another one may take its slot.

        Its unawaited commit is discarded if no round has included it.
        """
        if self.member[rank]:
            self._withdraw(rank)
            self._remove(rank, goodbye=False)

    def step_aside(self, message: Any) -> None:
        """Stop waiting for a worker at its own request (wire.ASIDE).

        Messages may overtake one another, so a request older than the newest acknowledged commit is
        ignored. Field "index" is 1 if the worker rests: it sends no commit before one with BACK.
        """
        rank = int(message["rank"])
        if message["sequence"] >= self.acknowledged[rank]:
            self.aside[rank], self._resting[rank] = True, bool(message["index"])

    def commit(self, message: Any, now: float) -> list[int]:
        """Register a commit whose payload is complete.

        Commits that are used together must agree in learning rate, momentum and weight decay, or
        the run is aborted. A commit is only acknowledged, but not used, if its worker was dropped,
        if its round has ended on this server, or if the run has ended. There is one exception:
        servers that do not decide when the run ends use commits at once even after that, because
        the deciding server receives them in another order and may have used this one.

        Returns:
            The ranks whose commits are to be applied now, in this order: those of the round after
            the last member's commit (synchronous), or this one (asynchronous). It is empty while
            commits are missing, and if this one is not used.
        """
        rank, together = int(message["rank"]), self.together(message)
        if unawaited := int(message["use"]) in UNAWAITED_USES:
            self.aside[rank], self._resting[rank] = True, False
        other = next(iter(self.pending.values()), None)
        self.pending[rank] = PendingCommit(message, now)
        self._now = now
        late = together and (
            not self.member[rank]
            or 0 < int(message["round"]) <= self.rounds_together
            or 0 < int(message["position"]) <= self._position  # a replacement begins the iteration anew
        )
        ended = bool(self.failure) or (self.finished and (self.decides or together))
        if ended or (unawaited and self._finish_reported) or message["use"] == wire.DISCARD or late:
            self._acknowledge([rank], now)
            self._release(now)
            return []
        if together and self._compared and other is not None:
            self.failure = self.scalars.disagreement(message, other.message, self.round + 1)
            if self.failure:
                return []
        return self.due() if together else [rank]

    def due(self) -> list[int]:
        """Return the ranks whose commits are to be applied together now; none while one is missing.

        Only those unawaited commits are used that the leader's commit names, so that all servers
        use them in the same round.
        """
        counted = self.counted
        if len(self.pending) < np.count_nonzero(counted):
            return []  # the usual case; what follows costs more the more workers there are
        members = set(np.flatnonzero(counted).tolist())
        if not (self.pending and members <= set(self.pending)):
            return []
        if not self.aside.any():
            return sorted(self.pending)
        included = wire.decode_ranks(self.pending[min(members)].message["includes"]) if members else None
        used = members | (included or set())
        return sorted(rank for rank in self.pending if rank in used or not self.holds_back(rank))

    def waits_for(self, rank: int) -> bool:
        """Return whether a round in which others have committed waits for this worker."""
        return bool(self.counted[rank]) and rank not in self.pending and bool(self.pending.keys() - self._bound.held)

    def follow(self, message: Any) -> None:
        """Adopt the first server's excluded workers for the current round (wire.FOLLOW).

        Messages about other rounds are ignored.
        """
        if message["round"] == self.rounds_together + 1:
            self._set_excluded(wire.decode_ranks(message["text"]) or ())

    def together(self, message: Any) -> bool:
        """Return whether a commit is used together with those of the other members."""
        use = int(message["use"])
        return self.synchronous if use == wire.AS_AGREED else use in _IN_ROUNDS

    def applied(self, ranks: list[int], now: float) -> None:
        """Count commits that have been applied to the weights, acknowledge them, and check limits.

        The requests of the leader, the first rank that rounds wait for, then apply to the next
        commits: how they are used, and whom rounds wait for. All workers learn of them together
        with the end of this round. If commits are used at once, the requests of every member apply.
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
            self.synchronous = True  # the commit that requested it may have reached other servers only
            self.step += 1
            self._position = int(messages[0]["position"])
            self._unfinished += self._position > 0
        else:
            self._at_once += len(ranks)
            self.step += len(ranks)
        self.round = self.rounds_together - self._unfinished + self._at_once // self.slots
        self.scalars.note(messages)
        self._round, self._combined = tuple(ranks) if together else None, None
        self._needed = tuple(int(message["rank"]) for message in messages if message["use"] != wire.UNAWAITED)
        for rank, message in zip(ranks, messages, strict=True):
            if message["use"] == wire.BACK:
                self.aside[rank] = False
        parts = {rank: int(message["part"]) for rank, message in zip(ranks, messages, strict=True)}
        self._checkpoint.used(parts, self.round, self._needed if together else None)
        for message in messages:
            if (message["rank"] == leader) if together else self.member[int(message["rank"])]:
                self._apply_requests(message)
        if self._bound.limited and not together:
            self._bound.held.update((rank, int(self.pending[rank].message["sequence"])) for rank in ranks)
            self._update_elapsed(now)
        else:
            self._acknowledge(ranks, now, wire.TOGETHER if together else wire.AT_ONCE)
        self.exchanged_at = self.elapsed
        if (self.decides or not together) and not self._position:
            self._check_limits()
        self._release(now)
        # The run may end with a commit used at once while others already wait for a round. That
        # round never ends, and one of the remaining workers alone would use learning rates that are
        # meant for the mean of all.
        if self.finished and self.pending:
            self._acknowledge(list(self.pending), now)

    def count(self, samples: int, now: float) -> None:
        """Count a round of a run on one device, unless the run has ended."""
        if due := self.commit(wire.message(wire.COMMIT, samples=samples), now):
            self.applied(due, now)

    def stop(self) -> None:
        """End the run cleanly: after the current round, or at once if commits are used at once."""
        self._stop_by(self.round + 1 if self.synchronous else self.round)

    def abort(self, reason: str) -> None:
        """End the run now, because it has failed; the reason of the first call is kept."""
        self.failure = self.failure or reason or "no reason was given"

    def _apply_requests(self, message: Any) -> None:
        """Apply a commit's requests to the next commits; see `applied` for whose requests apply."""
        if message["switch"] != wire.AS_AGREED:
            self.synchronous = bool(message["switch"] == wire.TOGETHER)
        ranks = wire.decode_ranks(message["text"])
        if not self.synchronous:
            self.excluded[:] = False
        elif ranks is not None and self.together(message):
            self._set_excluded(ranks)

    def _set_excluded(self, ranks: Collection[int]) -> None:
        excluded = np.isin(np.arange(self.slots), list(ranks))
        if (self.member & ~excluded).any():  # else there would be no leader
            self.excluded = excluded

    def holds_back(self, rank: int) -> bool:
        """Return whether a commit of a rank is pending that is used only in a round whose leader names it."""
        return rank in self.pending and int(self.pending[rank].message["use"]) in UNAWAITED_USES

    def _withdraw(self, rank: int) -> None:
        """Discard a worker's pending unawaited commit, if any."""
        if self.holds_back(rank):
            del self.pending[rank]

    def _remove(self, rank: int, goodbye: bool) -> None:
        self.member[rank] = False
        self._last_left_cleanly = goodbye
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
        """Acknowledge the held commits within the bound on staleness; all of them if the run has ended."""
        held = self._bound.held
        if held:
            for rank in sorted(held) if self.finished else self._bound.within(self.acknowledged, self.member):
                self._release_commit(rank, now)

    def _release_commit(self, rank: int, now: float) -> None:
        del self._bound.held[rank]
        waited = now - self.pending[rank].arrived
        self._acknowledge([rank], now, wire.AT_ONCE)
        self.wait[rank] = waited
        self.released += waited > 0

    def _check_limits(self) -> None:
        if self.samples >= self.limits.samples or self.elapsed >= self.limits.seconds:
            self._stop_by(self.round)

    def _stop_by(self, round_: int) -> None:
        self.stop_at = round_ if self.stop_at is None else min(self.stop_at, round_)
