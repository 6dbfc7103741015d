"""The work of a parameter server: stage arrays, count commits, apply the rule, publish.

How the weights of payloads and answers are packed is up to two parts, an uplink and a downlink
codec (`codecs.base`). All other vectors travel as they are.

Free of MXNet and of the network: an `endpoint.Endpoint` feeds it with what a key store or the
simulator delivers. One instance looks after the buckets of one server (a *shard* of the model) and
sees every call from one thread.

Memory, for a model of M bytes, p workers and S servers: M/S for the weights, up to p·M/S for
payloads that have begun to arrive and whose round is not over, and where the rule answers every
worker differently another p·M/S (the weights that each worker was sent last). Packed payloads wait
as they are, and are unpacked when they are added. Momentum and other state of a rule: M/S each. In
asynchronous modes the latest values of each worker come on top, of vectors that are replaced by
their mean: batch-norm statistics, which are small.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...rules import Rule, Step, put_together, replace_by_mean, take_apart
from ...runtime.output import RateLimitedLog
from ..codecs.base import ERRORS, Downlink, GetSum, UpdatedBucket, Uplink
from ..weighting import UNIFORM, LatestValues, divisor, factor, rounding_error
from . import wire
from .layout import WEIGHTS, Bucket, Layout
from .payload_staging import Array, HostMemory, Memory, PayloadStaging, RankOrderedSum
from .resume_negotiation import Offers, RunProgress, choose
from .round_state import UNAWAITED, RoundState

log = logging.getLogger(__name__)


@dataclass
class BucketState:
    """One bucket of the model on this server.

    Attributes:
        weights: the values that the rule works on, of any vector; the same memory as `published`,
            unless the server has a GPU or they are exact.
        published: bucket with header, as the workers pull it (channel 0).
        replies: rank → bucket with header for this worker alone, where the answers differ.
        exact: whether the published weights are the common ones, and only this server has those
            that the rule works on.
        state: of the rule for these values.
        assigned: values that take the place of `weights`: a checkpoint's, with which the rule
            begins, or those that workers have assigned between two rounds; None: there are none.
        assigners: rank → process and number of the payload that is to be used on assigned values.
        latest: of a vector that is replaced by its mean, where commits are used at once: the values
            of each worker; None: all have the published ones.
    """

    weights: Array
    published: np.ndarray
    replies: dict[int, np.ndarray]
    exact: bool = False
    state: Any = None
    assigned: np.ndarray | None = None
    assigners: dict[int, tuple[int, int]] = field(default_factory=dict)
    latest: LatestValues | None = None


class Commit(NamedTuple):
    """What a message commits: one worker's payload, or that of several workers of a host.

    Attributes:
        message: of the worker that has sent it (wire.MESSAGE); the arrays have its name.
        others: of the workers whose payloads are in these arrays, too.
    """

    message: Any
    others: Sequence[Any] = ()

    @property
    def all(self) -> list[Any]:
        """The messages of all its workers, in rank order."""
        return sorted([self.message, *self.others], key=lambda message: int(message["rank"]))


class ParameterServer:
    """One server's share of the protocol.

    Args:
        layout: how the model is cut into buckets.
        round_state: the progress of the run; `round_state.synchronous` decides whether rounds wait
            for everyone.
        uplink: unpacks the weights' part of payloads.
        downlink: packs the weights that the workers are sent.
        rules: name of each vector → its rule. One that is replaced by its mean
            (`rules.replace_by_mean`) takes that of the round, or of the latest values of all
            members where commits are used at once.
        clock: seconds, monotonic.
        memory: in which arrays are staged and added up; host memory for all codecs but "none".
        weightings: name of each vector → how much each worker counts in its mean; uniform for all
            if None.

    Raises:
        ValueError: the codecs do not work together, or there is a vector without a rule.
    """

    def __init__(
        self,
        layout: Layout,
        round_state: RoundState,
        uplink: Uplink,
        downlink: Downlink,
        rules: Mapping[str, Rule],
        clock: Callable[[], float],
        memory: Memory | None = None,
        weightings: Mapping[str, str] | None = None,
    ) -> None:
        if uplink.rule is not None:
            rules = {**rules, WEIGHTS: uplink.rule}
        if unruled := layout.sizes.keys() - rules.keys():
            raise ValueError(f"there is no rule for {', '.join(sorted(unruled))}")
        self.layout = layout
        self.round_state = round_state
        self.uplink, self.downlink = uplink, downlink
        self._message_type = wire.message_type(round_state.added)
        self.memory = memory if memory is not None else HostMemory()
        self._rules = rules
        # Payloads are multiplied as they arrive, the sum is divided once it is complete.
        self._weightings = weightings or dict.fromkeys(layout.sizes, UNIFORM)
        self._clock = clock
        self._complain = RateLimitedLog(log.warning)
        self._staging = PayloadStaging(self.memory)
        self._sum = RankOrderedSum(self.memory)
        self._arriving: dict[int, Commit] = {}  # commits whose payload is not complete yet
        self._bucket_states: dict[int, BucketState] = {}
        self._status: np.ndarray | None = None
        self.heard: dict[int, float] = {}  # when each worker's present holder was last heard
        self._mailbox: np.ndarray | None = None
        self._offers: dict[int, Offers] = {}

    def join(self, rank: int, nonce: int, offers: Offers | None = None) -> None:
        """Let a worker take slot `rank`; `offers` are the checkpoints that it could go on from.

        When all are there for the first time, the checkpoint that they go on from is chosen. What a
        former holder of the slot has left half done is discarded; a payload that it has committed
        counts.
        """
        self._arriving.pop(rank, None)
        self._staging.discard(rank)
        begun = self.round_state.started
        if self.round_state.nonce[rank] != nonce:
            self._forget_latest(rank)  # the replacement begins with the others' mean, which counts already
            self.downlink.join(rank, self.round_state.answer)
        self.round_state.join(rank, nonce, self._clock())
        self.heard[rank] = self._clock()
        self._offers[rank] = offers or Offers()
        if self.round_state.started and not begun:
            try:
                self.round_state.resume_at = choose(self._offers)
            except ValueError as error:
                self.round_state.abort(str(error))
        self._publish_status()

    def drop(self, rank: int) -> None:
        """Let the others go on without a worker.

        What it has committed counts, what it has left half done does not.
        """
        self._arriving.pop(rank, None)
        self.round_state.drop(rank)
        if rank not in self.round_state.pending:
            self._staging.discard(rank)
        self._forget_latest(rank)
        self._apply(self.round_state.due())
        self._publish_status()

    def abort(self, reason: str) -> None:
        """End the run for all workers, who print the reason."""
        self.round_state.abort(reason)
        self._publish_status()

    def hear(self, rank: int, nonce: int) -> None:
        """Note that a worker is alive."""
        if self._is_current(rank, nonce):
            self.heard[rank] = self._clock()

    def resume(self, rank: int, nonce: int, exchanges: int, progress: RunProgress | None) -> None:
        """Note that a worker has gone back to a checkpoint.

        Args:
            rank: its slot.
            nonce: of its process.
            exchanges: of its slot before that checkpoint.
            progress: of the run (rank 0 only).
        """
        if not self._is_current(rank, nonce):
            return
        self.round_state.resume_slot(rank, exchanges)
        if progress is not None:
            self.round_state.resume(progress, self._clock())
        self._publish_status()

    def push(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """Take a push for `key`; pulls of this key are answered from the memory `stored`.

        Both are float32; `received` is only valid during the call.
        """
        if key < self.layout.servers:
            self._status = stored
            self.receive(*wire.unpack_message(received, self._message_type))
            return
        if key < 2 * self.layout.servers:
            self._mailbox = stored
            self._take_state(received)
            return
        if self.round_state.failure:
            return  # the sender may be the one whose model does not fit
        if self.uplink.holds(key) or self.downlink.holds(key):
            self._take_packed(key, received, stored)
            return
        try:
            channel, bucket = self.layout.locate(key)
        except KeyError:
            channel = self.round_state.slots + 1
        if channel > self.round_state.slots:  # there is one for each worker, and one for all of them
            self._complain(f"a push of key {key} is ignored: no worker of this job has such a key")
            return
        self._keep(channel, bucket, stored)
        header = wire.header_of(received)
        if channel and header["kind"] == wire.NOTHING:
            np.copyto(stored, received)  # a worker tells us which weights it begins with
        rank, nonce = int(header["rank"]), int(header["nonce"])
        if self._is_current(rank, nonce):
            self.heard[rank] = self._clock()
        if header["kind"] != wire.PAYLOAD or not self._is_current(rank, nonce):
            return  # initial values, or a worker whose slot another one has taken
        self._stage(header, bucket.index, received)

    def _take_packed(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """Take an array with a key of the codecs.

        It brings values, or shows where that key is stored.
        """
        header = wire.header_of(received)
        rank = int(header["rank"])
        if not self._is_current(rank, int(header["nonce"])):
            return
        self.heard[rank] = self._clock()
        if self.downlink.holds(key):
            self.downlink.open(key, stored)
        if header["kind"] == wire.PAYLOAD and self.uplink.holds(key):
            self._stage(header, _packed(int(header["bucket"])), received)

    def _stage(self, header: Any, place: int, received: np.ndarray) -> None:
        """Keep one array of a payload, which may complete it where its commit has overtaken it."""
        rank, sequence = int(header["rank"]), int(header["sequence"])
        values, attempt = received[wire.HEADER_ELEMENTS :], int(header["place"])
        self._staging.put(rank, int(header["nonce"]), sequence, place, values, attempt)
        if rank in self._arriving:
            self._on_commit(self._arriving[rank])
            self._publish_status()

    def _keep(self, channel: int, bucket: Bucket, stored: np.ndarray) -> None:
        """Remember where a key's values are; they come with every push and never move."""
        kept, values = self._bucket_state(bucket.index), stored[wire.HEADER_ELEMENTS :]
        trained = bucket.vector == WEIGHTS
        if channel:
            kept.replies[channel - 1] = stored
            if trained:
                self.downlink.init_channel(channel - 1, bucket.index, values)
        elif kept.weights is None:
            kept.published = stored
            wire.stamp(stored, wire.WEIGHTS, 0, 0, self.round_state.step, bucket.index)
            kept.exact = trained and self.downlink.keeps_exact
            kept.weights = self._newest(kept, values.copy() if kept.exact else values)
            if trained:
                self.downlink.place(bucket.index, kept.weights)

    def _newest(self, kept: BucketState, values: np.ndarray) -> Array:
        """Return where the rule works on these values (host memory), or the assigned ones, if any."""
        if kept.assigned is not None:
            np.copyto(values, kept.assigned)
            kept.assigned = None
            kept.assigners.clear()
        return values if kept.exact else self.memory.work_on(values)

    def _bucket_state(self, index: int) -> BucketState:
        """Return the state of a bucket, made on first use.

        A bucket's values may come first, or a checkpoint's state of the rule.
        """
        if index not in self._bucket_states:
            self._bucket_states[index] = BucketState(None, np.empty(0, np.float32), {})
        return self._bucket_states[index]

    def _take_state(self, received: np.ndarray) -> None:
        """Take a vector of the rule's state for a bucket, or its weights, from a checkpoint."""
        header = wire.header_of(received)
        if header["kind"] != wire.STATE or not self._is_current(int(header["rank"]), int(header["nonce"])):
            return  # only shows where the mailbox is
        bucket, place, count = self.layout.buckets[header["bucket"]], int(header["place"]), int(header["sequence"])
        values = received[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        kept = self._bucket_state(bucket.index)
        if place == wire.SERVER_WEIGHTS:
            kept.assigned = values.copy()
            kept.assigners[int(header["rank"])] = int(header["nonce"]), count
            return
        vectors: list[Any] = take_apart(kept.state) if kept.state is not None else [None] * count
        vectors[place] = self.memory.work_on(values.copy())
        kept.state = put_together(vectors)

    def _give_state(self, index: int, place: int) -> None:
        """Put that vector where it can be pulled; the kind is NOTHING where there is none yet."""
        if self._mailbox is None:
            raise RuntimeError("a worker has asked for the rule's state before it has shown where the mailbox is")
        kept = self._bucket_state(index)
        if place == wire.SERVER_WEIGHTS:
            vector = kept.weights
        else:
            vector = take_apart(kept.state)[place] if kept.state is not None else None
        header = wire.header_of(self._mailbox)
        header["kind"] = wire.NOTHING if vector is None else wire.STATE
        header["bucket"], header["place"] = index, place
        if vector is not None:
            values = self.memory.fetch(vector)
            self._mailbox[wire.HEADER_ELEMENTS :][: values.size] = values

    def _is_current(self, rank: int, nonce: int) -> bool:
        return 0 <= rank < self.round_state.slots and self.round_state.nonce[rank] == nonce

    def receive(self, message: Any, others: Sequence[Any] = ()) -> None:
        """Take a worker's message (wire.MESSAGE).

        With a commit may come those of `others` of its host, whose payloads are in the same arrays.
        """
        kind, rank = int(message["kind"]), int(message["rank"])
        if self._is_current(rank, int(message["nonce"])):
            self.heard[rank] = self._clock()
            if kind == wire.COMMIT:
                self._on_commit(Commit(message, others))
            elif kind in (wire.LEAVE, wire.DONE):
                if kind == wire.LEAVE:
                    self._forget_latest(rank)
                self.round_state.leave(rank, done=kind == wire.DONE)
                self._apply(self.round_state.due())
            elif kind == wire.FOLLOW:
                self.round_state.follow(message)
                self._apply(self.round_state.due())
            elif kind == wire.ASIDE:
                self.round_state.step_aside(message)
                self._apply(self.round_state.due())
            elif kind == wire.STOP:
                self.round_state.stop()
            elif kind == wire.ABORT:
                self.round_state.abort(message["text"].decode())
            elif kind == wire.FETCH:
                self._give_state(int(message["buckets"]), int(message["place"]))
        self._publish_status()

    def _on_commit(self, commit: Commit) -> None:
        message = commit.message
        rank, nonce, sequence = int(message["rank"]), int(message["nonce"]), int(message["sequence"])
        if sequence <= self.round_state.acknowledged[rank]:
            self._staging.discard(rank, up_to=sequence)
            return  # a repeated commit
        self._arriving[rank] = commit
        if not self._staging.complete(rank, nonce, sequence, int(message["buckets"]), int(message["place"])):
            return
        del self._arriving[rank]
        if commit.others:
            self._on_group(commit)
            return
        if rank in self.round_state.pending:  # a worker that died after its commit: its payload is in the sum already
            self._staging.discard(rank)
            return
        due = self.round_state.commit(message, self._clock())
        if rank not in self.round_state.pending:  # it is only acknowledged
            self._staging.discard(rank)
            self.downlink.publish_to(rank, self.round_state.answer)
        elif self.round_state.failure:
            self._staging.discard(rank)
        elif self.round_state.together(message) and int(message["use"]) not in UNAWAITED:
            with self._refusing():
                self._add(commit)
        self._apply(due)

    def _on_group(self, commit: Commit) -> None:
        """Count the workers of a host, whose payloads are one, all of them or none.

        They are none where one of them is not a member any more, has committed by itself, or has
        been replaced. The others find that in the status, and send their payloads themselves.
        """
        owner, messages, state = int(commit.message["rank"]), commit.all, self.round_state
        alike = len({(int(message["round"]), int(message["use"])) for message in messages}) == 1
        distinct = len({int(message["rank"]) for message in messages}) == len(messages)
        together = alike and distinct and state.together(commit.message)
        if not (together and all(map(self._may_commit, messages))):
            self._staging.discard(owner)
            return
        due: list[int] = []
        for message in messages:
            due = state.commit(message, self._clock())
        if owner in state.pending and not state.failure:
            with self._refusing():
                self._add(commit)
        else:  # all of them are too late, or their commits do not fit
            self._staging.discard(owner)
        self._apply(due)

    def _may_commit(self, message: Any) -> bool:
        """Return whether a worker takes part, and has not committed in this exchange yet."""
        rank, state = int(message["rank"]), self.round_state
        current = self._is_current(rank, int(message["nonce"])) and state.member[rank]
        return bool(current and rank not in state.pending and message["sequence"] > state.acknowledged[rank])

    def _apply(self, ranks: list[int]) -> None:
        """Apply the commits of these ranks to the weights."""
        if ranks and not self.round_state.failure:
            with self._refusing():
                self._use(ranks)
                self.round_state.applied(ranks, self._clock())

    def _use(self, ranks: list[int]) -> None:
        messages = {rank: self.round_state.pending[rank].message for rank in ranks}
        if self.round_state.together(messages[ranks[0]]):
            for message in messages.values():
                if int(message["use"]) in UNAWAITED:
                    self._add(Commit(message))
            total = self._sum.finish()
            samples = [int(message["samples"]) for message in messages.values()]
            divisors = {name: divisor(weighting, samples) for name, weighting in self._weightings.items()}
            self._update(total, self.round_state.scalars.terms(list(messages.values())), ranks, divisors)
            self._sum.clear()
        else:
            for rank in ranks:
                payload, packed = _take_apart(self._staging.take(rank))
                with _of_worker(rank):
                    unpacked = self.uplink.read(packed)
                self._update({**payload, **unpacked}, messages[rank], [rank])
                self.memory.release([*payload.values(), *packed.values()])

    def _add(self, commit: Commit) -> None:
        """Add a payload to the sum of its round, times its worker's factor in the mean.

        The payload of a host is a sum with these factors already, but for packed weights, which are
        a mean (see `host_exchange`). It takes the turn of the host's smallest rank.
        """
        owner, messages = int(commit.message["rank"]), commit.all
        factors = {
            name: sum(factor(weighting, int(message["samples"])) for message in messages)
            for name, weighting in self._weightings.items()
        }
        payload, packed = _take_apart(self._staging.take(owner))

        def own(index: int) -> float:
            return 1.0 if commit.others else factors[self.layout.buckets[index].vector]

        def unpack(get_sum: GetSum) -> None:
            with _of_worker(owner):
                self.uplink.add(packed, get_sum, factors[WEIGHTS])
            self.memory.release(packed.values())

        first, *others = (int(message["rank"]) for message in messages)
        self._sum.put(first, payload, self.round_state.counted, unpack, own)
        for rank in others:
            self._sum.put(rank, {}, self.round_state.counted)

    def _update(
        self, values: dict[int, Array], message: Any, ranks: list[int], divisors: Mapping[str, float] | None = None
    ) -> None:
        """Run the rules on all buckets, and put the results where they are pulled from.

        The values of each vector are divided by its divisor first; none: they are not.
        """
        for index, value in values.items():
            vector = self.layout.buckets[index].vector
            self._update_bucket(index, value, message, ranks, divisors[vector] if divisors else 1.0)
            if vector == WEIGHTS:
                bucket = self._bucket_states[index]
                self.downlink.pack(
                    UpdatedBucket(index, bucket.weights, bucket.published[wire.HEADER_ELEMENTS :], value)
                )
        # The round under way is only counted when all of it has been done.
        self.downlink.publish(ranks, self.round_state.step + 1, self.round_state.answer)

    def _update_bucket(self, index: int, value: Array, message: Any, ranks: list[int], denominator: float) -> None:
        kept, vector = self._bucket_states[index], self.layout.buckets[index].vector
        # By now all workers have fetched the weights of the last round.
        if kept.assigned is not None and any(self._assigns(rank, kept) for rank in ranks):
            kept.weights = self._newest(kept, kept.weights if kept.exact else kept.published[wire.HEADER_ELEMENTS :])
        private = self.downlink.private and vector == WEIGHTS
        sent = self.memory.work_on(kept.replies[ranks[0]][wire.HEADER_ELEMENTS :]) if private else None
        step = Step.of(message, sent, self.round_state.step, self.round_state.slots, len(ranks), self.round_state.added)
        rule = self._rules[vector]
        if rule is replace_by_mean:
            if denominator != 1:
                value /= denominator
                denominator = 1
            value = self._mean_of_latest(kept, value, message, self._weightings[vector])
        kept.weights, kept.state = self.memory.update(rule, kept.weights, value, kept.state, step, denominator)
        host = self.memory.fetch(kept.weights)
        targets = [kept.replies[rank] for rank in ranks] if private else []
        if host is not kept.weights:  # else the rule has worked on the published values themselves
            targets.append(kept.published)
        for target in targets:
            np.copyto(target[wire.HEADER_ELEMENTS :], host)
        # The round under way is only counted when all of it has been done.
        wire.stamp(kept.published, wire.WEIGHTS, 0, 0, self.round_state.step + 1, index)

    def _assigns(self, rank: int, kept: BucketState) -> bool:
        """Return whether the pending payload of a worker is to be used on assigned values."""
        message = self.round_state.pending[rank].message
        return kept.assigners.get(rank) == (int(message["nonce"]), int(message["sequence"]))

    def _mean_of_latest(self, kept: BucketState, value: Array, message: Any, weighting: str) -> Array:
        """Return the mean that replaces a bucket's values.

        It is the mean of a round as it is, or that of all workers' latest values.
        """
        if self.round_state.together(message):
            kept.latest = None  # from now on all workers have this mean
            # Otherwise frozen layers would drift.
            self.memory.undo_rounding(value, kept.weights, rounding_error(self.round_state.slots))
            return value
        if kept.latest is None:
            kept.latest = LatestValues(self.memory.fetch(kept.weights), self.round_state.member, weighting)
        kept.latest.put(int(message["rank"]), self.memory.fetch(value), int(message["samples"]))
        return self.memory.work_on(kept.latest.mean())

    def _forget_latest(self, rank: int) -> None:
        """Leave out the latest values of the worker that was here from the next commit on."""
        for kept in self._bucket_states.values():
            if kept.latest is not None:
                kept.latest.forget(rank)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """End the run where a payload cannot be read, or weights cannot be packed."""
        try:
            yield
        except ERRORS as error:
            self.abort(f"{error}; nothing was done with it")

    def _publish_status(self) -> None:
        if self._status is not None:
            record = self.round_state.status()
            self._status.view(np.uint8)[: record.dtype.itemsize] = np.frombuffer(record.tobytes(), np.uint8)


def _packed(place: int) -> int:
    """Return the place in a staged payload of a packed array, given its place among those.

    Unpacked buckets have places of 0 or more.
    """
    return ~place


def _take_apart(payload: dict[int, Array]) -> tuple[dict[int, Array], dict[int, Array]]:
    """Split a staged payload into unpacked buckets, by index, and packed arrays, by place."""
    buckets = {place: values for place, values in payload.items() if place >= 0}
    return buckets, {_packed(place): values for place, values in payload.items() if place < 0}


@contextmanager
def _of_worker(rank: int) -> Iterator[None]:
    """Name the worker in errors about its payload, within a with statement."""
    try:
        yield
    except ERRORS as error:
        raise type(error)(f"worker {rank}: {error}") from None
