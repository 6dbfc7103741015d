"""What must hold in every schedule; docs/internals/exchange.md lists it in words."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from esync import config
from esync.checkpoints.checkpoints import _offer
from esync.checkpoints.store import CheckpointStore
from esync.coordination.coordinator import Coordinator
from esync.exchange import WEIGHTS, Payload
from esync.exchange.base import Result
from esync.exchange.codecs.quantization import NONE
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.resume_negotiation import Offer, Offers, choose
from esync.exchange.protocol.round_state import RoundState

from ..support.vectors import Held, gradient
from .algorithms import AlgorithmWorker
from .processes import ENDLESS, Cluster, Process
from .schedule import Schedule
from .worker import Worker

AnyWorker = Worker | AlgorithmWorker

#: Rule → function of the number of workers that returns what each 1 that a worker sends adds to the
#: weights, at learning rate 1 and without momentum. Each value of the model is moved by one worker
#: alone, and therefore does not change between two of its payloads: there is no delay to compensate.
ADDED: dict[str, Callable[[int], float]] = {
    "sgd": lambda workers: -1.0,
    "momentum_sgd": lambda workers: -1.0,
    "delay_compensated_sgd": lambda workers: -1.0,
    "difference": lambda workers: -1.0,
    "add_mean_update": lambda workers: 1.0,
    "outer_nesterov": lambda workers: 1.0,
    "delayed_nesterov": lambda workers: 1.0 / workers,
}
#: What each sample of a payload counts in the mean of a round, and what the payload counts beside.
WEIGHTED = {"uniform": (0, 1), "samples": (1, 0)}


class InvariantError(AssertionError):
    """Something has happened that must not happen."""


@dataclass
class Observed:
    """What was observed in the jobs of a schedule.

    Attributes:
        models: round → the model after it; None where that need not be the same in every job.
        parts: round and job number of a checkpoint → ranks whose parts have been written.
        needs: likewise → ranks whose parts it needs.
        newest: round of the newest whole checkpoint; -1: there was none yet.
        used: round → the commits of each rank that the first server's weights had after it.
    """

    models: dict[int, bytes] | None = field(default_factory=dict)
    parts: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    needs: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    newest: int = -1
    used: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def note(self, round_state: RoundState) -> None:
        """Note which commits the first server of a job has used."""
        total = Counter(self.used[max(round_state.resume_at, 0)])
        for use in log_of(round_state):
            total.update(commit.rank for commit in use.commits)
            self.used[use.round] = Counter(total)

    def wrote(self, rank: int, round_: int, facts: dict[str, Any]) -> None:
        """Note that a part of a checkpoint is on the disk."""
        checkpoint = round_, int(facts["job"])
        self.parts[checkpoint].add(rank)
        if "needs" in facts:
            self.needs[checkpoint] = set(facts["needs"])
        if self.needs.get(checkpoint, {-1}) <= self.parts[checkpoint]:
            self.newest = max(self.newest, round_)

    def forget(self) -> None:
        """From now on the model after a round need not be the same in every job."""
        self.models = None


class Invariants:
    """What is checked in one job.

    Args:
        schedule: of the job.
        cluster: its servers.
        processes: of its workers, as they are started.
        observed: in this job and those before it.

    Attributes:
        written: whether worker 0 has written the final model.
    """

    def __init__(self, schedule: Schedule, cluster: Cluster, processes: Sequence[Process], observed: Observed) -> None:
        self._schedule, self._cluster, self._processes, self._observed = schedule, cluster, processes, observed
        self.written = False
        self._reached: dict[int, int] = {}  # slot → exchanges since the job began
        self._before: dict[int, int] = {}  # slot → exchanges before
        self._initial: Held | None = None
        self._models: dict[int, bytes] = {}
        self._unsure: dict[int, tuple[int, bytes]] = {}  # process → round and model, until it is heard to be a member
        self._elastic = schedule.settings.elastic
        self._sent: dict[tuple[int, int], Payload] = {}  # process and sequence → what it has sent
        self._rounds: dict[int, int] = {}  # process → its round after its last exchange
        self._summed = True  # whether the weights are a sum of commits that have been used
        self._specification = schedule.settings.specification
        if self._elastic:
            observed.forget()

    def begins(self, worker: AnyWorker, held: Held, exact: np.ndarray | None) -> None:
        """Note the model that worker 0 begins with.

        `exact` are the servers' weights if a checkpoint has others.
        """
        self._specification = worker.exchange.specification
        resumed, rank, settings = worker.exchange.resume_at, worker.rank, self._schedule.settings
        goes_on = resumed >= 0 and not worker.exchange.replacement
        if goes_on and (settings.rounds or settings.tiered) and worker.trained > self._observed.used[resumed][rank]:
            raise InvariantError(f"worker {rank} goes on after a commit that the checkpoint's model does not have")
        if worker.rank == 0 and not worker.exchange.replacement:
            self._initial = Held({name: vector.size for name, vector in held.vectors.items()})
            for name, vector in held.vectors.items():
                self._initial.write(name, 0, vector)
            if exact is not None:
                self._initial.write(WEIGHTS, 0, exact)

    def sent(self, exchange: ParameterServerExchange, payload: Payload) -> None:
        """Note what a worker sends."""
        nonce = exchange.store.nonce
        self._sent[nonce, exchange.sequence + 1] = payload
        # What a resumed job's servers remember is not known here.
        momentum_known = exchange.specification.rule == "outer_nesterov" and exchange.resume_at < 0
        self._summed = self._summed and not payload.weight_decay and (not payload.momentum or momentum_known)

    def exchanged(self, worker: AnyWorker, result: Result, held: Held) -> None:
        """Compare the model of a worker after an exchange with the others'."""
        nonce = worker.exchange.store.nonce
        if nonce in self._unsure:  # it was a member when this exchange was acknowledged
            self._compare(*self._unsure.pop(nonce))
        payload = self._sent[nonce, worker.exchange.sequence - worker.algorithm.in_flight]
        if result.used and not self._elastic:
            self._check_round(worker, payload)
        use = payload.control.use
        together = use != wire.AT_ONCE and (use != wire.AS_AGREED or worker.exchange.specification.synchronous)
        waited_for = not payload.control.in_later_round and worker.rank not in result.excluded
        if together and waited_for and result.used and result.synchronous is not False:
            compared = held.vectors.values() if self._schedule.settings.rounds else [held.weights]
            held_now = b"".join(vector.tobytes() for vector in compared)
            if self._elastic and not result.finished:
                self._unsure[nonce] = result.step, held_now
            else:
                self._compare(result.step, held_now)
        if not result.finished:
            self._check_staleness(worker)

    def finishes(self, worker: AnyWorker) -> None:
        """Note that a worker has done its work, and is about to say goodbye."""
        self._reached[worker.rank] = ENDLESS  # nobody waits for it

    def check_absence(self, shard: int, process: Process, departed: bool) -> None:
        """A server goes on without a worker: is it dead, or has it been silent?"""
        present = process.code is None and process.joined and not departed
        if present and process.nonce not in self._cluster.suspended and self._cluster.idle(process.nonce):
            raise InvariantError(
                f"server {shard} goes on without worker {process.number}, which has said that it is there"
            )

    def count(self, worker: AnyWorker) -> None:
        """Note how far a worker is."""
        sequence = worker.exchange.sequence
        self._reached[worker.rank] = sequence - self._before.setdefault(worker.rank, sequence)

    def _check_round(self, worker: AnyWorker, payload: Payload) -> None:
        """Check that rounds advance by one; of a worker that nobody waits for, by one or more."""
        nonce, round_ = worker.exchange.store.nonce, worker.exchanges
        before = self._rounds.get(nonce)
        if before is not None and (round_ <= before if payload.control.in_later_round else round_ != before + 1):
            raise InvariantError(f"worker {worker.rank} went from round {before} to round {round_}")
        self._rounds[nonce] = round_

    def check_wait(self, worker: AlgorithmWorker, result: Result, coordinator: Coordinator) -> None:
        """Check that nobody has waited longer than for an iteration of its own, and epsilon.

        Nothing disturbs the cluster, and messages take no time.
        """
        step_time, epsilon = worker.step_time, coordinator.epsilon
        bound = step_time + (config.EPSILON_SHARE * step_time if epsilon is None else epsilon) + 1e-6
        if worker.delayed:  # READY may come after the slowest worker has begun one more iteration
            bound += max(map(self._schedule.step_time, range(self._schedule.workers)))
        if result.wait > bound:
            raise InvariantError(f"worker {worker.rank} waited {result.wait:.3f} s; its bound is {bound:.3f} s")

    def _check_staleness(self, worker: AnyWorker) -> None:
        """Check, when a worker goes on, that it is not too far ahead of another one.

        Exchanges count that others know of.
        """
        rank, maximum = worker.rank, worker.exchange.specification.staleness + 1
        self.count(worker)
        for other in range(self._schedule.workers):
            if self._reached[rank] - self._reached.get(other, 0) > maximum:
                raise InvariantError(
                    f"worker {rank} has had {self._reached[rank]} exchanges of this job, and worker {other} has had "
                    f"{self._reached.get(other, 0)}"
                )

    def _compare(self, round_: int, model: bytes) -> None:
        if self._models.setdefault(round_, model) != model:
            raise InvariantError(f"two workers have different models after round {round_}")
        settings = self._schedule.settings
        # What is rounded depends on whether a worker sends its payload alone or with others of its host.
        alike = settings.rounds and not (settings.hosts and settings.forgetful)
        models = self._observed.models if alike else None
        if models is not None and models.setdefault(round_, model) != model:
            raise InvariantError(f"the model after round {round_} is another one than it was in an earlier job")

    def check_end(self) -> None:
        """Check the servers' round states when all processes have ended by themselves."""
        schedule, settings = self._schedule, self._schedule.settings
        round_states = [node.endpoint.server.round_state for node in self._cluster.nodes]
        if not round_states[0].finished:
            raise InvariantError(f"all workers have ended, and the run is not over after round {round_states[0].round}")
        if (settings.rounds or settings.tiered) and not self._elastic and not self.written:
            raise InvariantError("the run is finished, and nobody has written the final model")
        self._check_agreement(round_states)
        used = [
            Counter(commit[:2] for use in log_of(round_state) for commit in use.commits) for round_state in round_states
        ]
        # The first server decides when the run is over: of commits that are used at once, the last
        # ones may be under way then, and others may use them all the same.
        last = [use for round_state in round_states for use in log_of(round_state)[-1:]]
        late = {commit for use in last if not use.together for commit in _newest(used)}
        if self._elastic:
            # Servers go on without a worker that dies between two of them, each when it notices,
            # and its replacement takes part from the earliest round on that one of them has under
            # way.
            logs = sorted(
                {commit for round_state in round_states for use in log_of(round_state) for commit in use.commits},
                reverse=True,
            )
            finished = {process.nonce for process in self._processes if process.code == 0}
            first = {log.nonce: log[:2] for log in logs if round_states[0].arrivals[log.rank] > 1}
            late |= {log[:2] for log in logs if log.nonce not in finished} | set(first.values())
            if settings.tiered:  # whom a leader that dies in the last round has named counts where it has been heard
                late |= {commit[:2] for use in last if use.together for commit in use.commits}
        for shard, counts in enumerate(used):
            if twice := [commit for commit, count in counts.items() if count > 1]:
                raise InvariantError(f"server {shard} has used commits (rank, sequence) twice: {twice}")
            if only := {*(counts - used[0]), *(used[0] - counts)} - late:
                raise InvariantError(f"only one of servers 0 and {shard} has used commits {sorted(only)}")
        # A replacement sends a commit again that some servers have used, with samples of its own.
        again = settings.mode and len(self._processes) > schedule.workers
        counted = {
            (round_state.round, round_state.version, round_state.step, 0 if again else round_state.samples)
            for round_state in round_states
        }
        if not late and len(counted) > 1:
            raise InvariantError(f"the servers' rounds differ: {sorted(counted)}")
        if settings.rounds and len({round_state.round for round_state in round_states}) > 1:
            raise InvariantError(f"servers have ended different rounds: {sorted(counted)}")
        if not settings.elastic and not settings.tiered:
            for use in [use for round_state in round_states for use in log_of(round_state) if use.together]:
                if tuple(sorted(commit.rank for commit in use.commits)) != use.awaited:
                    raise InvariantError(f"a round was one of {use.commits}, but not of all of {use.awaited}")
        specification = self._specification
        exact = specification.compression == NONE and specification.weighting in WEIGHTED
        exact = self._summed and exact and specification.rule in ADDED
        if exact and any(round_state.version for round_state in round_states):
            self._check_weights()

    def _check_agreement(self, round_states: list[RoundState]) -> None:
        """Check that servers that have used the same commits agree on how the next ones are used.

        They must also agree on whose they are.
        """
        seen: dict[tuple[int, tuple[Commit, ...]], tuple[bool, tuple[int, ...]]] = {}
        for round_state in round_states:
            for use in log_of(round_state):
                if use.together and seen.setdefault((use.round, use.commits), use.outcome) != use.outcome:
                    raise InvariantError(f"servers do not agree on how commits are used after {use}")

    def _check_weights(self) -> None:
        """Check that the servers' weights are the sum of the commits that they have used."""
        specification, workers = self._specification, self._schedule.workers
        by_sample, by_payload = WEIGHTED[specification.weighting]
        if self._initial is None:
            raise InvariantError("nobody has begun")
        for node in self._cluster.nodes:
            server, expected = node.endpoint.server, self._initial.weights.astype(np.float64)
            velocity = np.zeros_like(expected)
            for use in log_of(server.round_state):
                sent = {commit: self._sent[commit.nonce, commit.sequence] for commit in use.commits}
                counts = {commit: by_sample * payload.samples + by_payload for commit, payload in sent.items()}
                mean = sum(
                    count / sum(counts.values()) * gradient(commit.rank, commit.sequence, workers)
                    for commit, count in counts.items()
                )
                newest = next(iter(sent.values()))
                rate = 1.0 if specification.sparse else newest.learning_rate
                velocity = newest.momentum * velocity + mean
                expected += rate * ADDED[specification.rule](workers) * (mean + newest.momentum * velocity)
            for bucket in server.layout.of(WEIGHTS, self._cluster.nodes.index(node)):
                held = node.stored[server.layout.key(bucket)][wire.HEADER_ELEMENTS :]
                if not np.allclose(held, expected[bucket.start : bucket.stop], rtol=1e-4, atol=1e-5):
                    raise InvariantError(f"bucket {bucket.index} does not hold what was used")


def check_checkpoints(folder: Path, workers: int, newest: int) -> None:
    """Check that a job that began now would go on from the newest whole checkpoint.

    Args:
        folder: of the checkpoints.
        workers: number of slots.
        newest: round of the newest checkpoint that was whole; -1: there was none yet.
    """
    if newest < 0:
        return
    offers = {rank: Offers(True, offers_of(folder, rank)) for rank in range(workers)}
    try:
        at = choose(offers)
    except ValueError as error:
        raise InvariantError(f"the checkpoint of round {newest} was whole, and now: {error}") from error
    if at < newest:
        raise InvariantError(f"the checkpoint of round {newest} was whole, but the newest is of round {at}")


def offers_of(folder: Path, rank: int) -> list[Offer]:
    """Return the parts that a worker would offer in its handshake."""
    return [_offer(part) for part in CheckpointStore(folder, rank).parts()]


class Commit(NamedTuple):
    """A commit that a server has used, and whose it was."""

    rank: int
    sequence: int
    nonce: int


@dataclass(frozen=True)
class Use:
    """Commits that a server has used.

    Attributes:
        commits: which ones.
        together: whether they were a round; else there is one.
        round: rounds that were over then.
        awaited: slots whose workers no worker has asked not to wait for.
        outcome: whether the next ones are used together, and whom they do not wait for.
    """

    commits: tuple[Commit, ...]
    together: bool
    round: int
    awaited: tuple[int, ...]
    outcome: tuple[bool, tuple[int, ...]]


def log_of(round_state: RoundState) -> list[Use]:
    """Return what a server has used, in order."""
    return round_state.__dict__.setdefault("log_of_search", [])


def _newest(used: Iterable[Iterable[tuple[int, int]]]) -> set[tuple[int, int]]:
    """Return the last commit of each worker, as rank and sequence number."""
    newest = dict(sorted(set().union(*used)))
    return set(newest.items())


@contextmanager
def logged_commits() -> Iterator[None]:
    """Have every round state keep a log of the commits that were used; see `log_of`."""
    applied = RoundState.applied

    def logging_applied(round_state: RoundState, ranks: list[int], now: float) -> None:
        commits = [round_state.pending[rank].message for rank in ranks]
        uses = tuple(
            Commit(rank, int(message["sequence"]), int(message["nonce"]))
            for rank, message in zip(ranks, commits, strict=True)
        )
        together = round_state.together(commits[0])
        awaited = tuple(np.flatnonzero(~round_state.excluded).tolist())
        applied(round_state, ranks, now)
        outcome = round_state.synchronous, tuple(np.flatnonzero(round_state.excluded).tolist())
        log_of(round_state).append(Use(uses, together, round_state.rounds_together, awaited, outcome))

    with mock.patch.object(RoundState, "applied", logging_applied):
        yield
