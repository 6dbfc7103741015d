"""A parameter server: stage payloads, count commits, update the model, publish the status.

Two codecs (`codecs.base`) pack the weights: the uplink those of payloads, the downlink those of
answers. All other vectors travel unpacked.

This module uses neither MXNet nor the network: an `endpoint.Endpoint` passes on the arrays that a
key store or the simulator delivers. One instance serves the buckets of one server (a *shard* of the
model), and all calls come from one thread.

Memory, for a model of M bytes, p workers and S servers: up to p·M/S for payloads whose round is not
over, packed payloads in their packed size. See `server_model` for the model itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...rules import Rule
from ..codecs.base import Downlink, GetSum, Uplink
from ..codecs.quantization import CompressionError
from ..weighting import divisor, factor
from . import wire
from .layout import WEIGHTS, Layout
from .payload_staging import Array, HostMemory, Memory, PayloadStaging, RankOrderedSum
from .resume_negotiation import Offers, RunProgress, choose
from .round_state import UNAWAITED_USES, RoundState
from .server_model import ServerModel
from .status import status_record


class Commit(NamedTuple):
    """The commit of one worker's payload, or of the sum of several workers of a host.

    Attributes:
        message: of the sender (wire.MESSAGE), whose rank the arrays carry.
        others: messages of the other workers whose payloads are in the sum.
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

    Attributes:
        model: the buckets of this server.
        active_at: rank → time of the newest message from the process that holds the slot, in
            seconds of `clock`.

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
        memory: Memory | None,
        weightings: Mapping[str, str],
    ) -> None:
        if uplink.rule is not None:
            rules = {**rules, WEIGHTS: uplink.rule}
        self.layout = layout
        self.round_state = round_state
        self.uplink, self.downlink = uplink, downlink
        self._message_type = wire.message_type(round_state.added)
        self.memory = memory if memory is not None else HostMemory()
        # Payloads are multiplied as they arrive, the sum is divided once it is complete.
        self._weightings = weightings
        self.model = ServerModel(layout, round_state, downlink, rules, self._weightings, self.memory)
        self._clock = clock
        self._staging = PayloadStaging(self.memory)
        self._sum = RankOrderedSum(self.memory)
        self._arriving: dict[int, Commit] = {}  # commits whose payload is not complete yet
        self._status: np.ndarray | None = None
        self.active_at: dict[int, float] = {}
        self._mailbox: np.ndarray | None = None
        self._offers: dict[int, Offers] = {}

    def join(self, rank: int, nonce: int, offers: Offers | None = None) -> None:
        """Let a worker take slot `rank`.

        When all slots are taken for the first time, the checkpoint to resume from is chosen. An
        incomplete payload of the slot's former holder is discarded; a committed one counts.

        Args:
            rank: the slot.
            nonce: of the worker's process.
            offers: the checkpoints that the worker could resume from.
        """
        self._arriving.pop(rank, None)
        if not self.round_state.holds_back(rank):
            self._staging.discard(rank)
        begun = self.round_state.started
        if self.round_state.nonce[rank] != nonce:
            self.model.forget_latest(rank)  # the replacement begins with the others' mean, which counts already
            self.downlink.join(rank, self.round_state.answer)
        self.round_state.join(rank, nonce, self._clock())
        self.active_at[rank] = self._clock()
        self._offers[rank] = offers or Offers()
        if self.round_state.started and not begun:
            try:
                self.round_state.resume_at = choose(self._offers)
            except ValueError as error:
                self.round_state.abort(str(error))
        self._publish_status()

    def drop(self, rank: int) -> None:
        """Let the others go on without a worker.

        Its committed payload counts; an incomplete one is discarded.
        """
        self._arriving.pop(rank, None)
        self.round_state.drop(rank)
        if rank not in self.round_state.pending:
            self._staging.discard(rank)
        self.model.forget_latest(rank)
        self._apply(self.round_state.due())
        self._publish_status()

    def abort(self, reason: str) -> None:
        """End the run for all workers, who print the reason."""
        self.round_state.abort(reason)
        self._publish_status()

    def record_activity(self, rank: int, nonce: int) -> bool:
        """Note that a worker is alive; return whether this process holds the slot."""
        if current := self._is_current(rank, nonce):
            self.active_at[rank] = self._clock()
        return current

    def resume(self, rank: int, nonce: int, exchanges: int, progress: RunProgress | None) -> None:
        """Note that a worker has resumed from a checkpoint.

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
        """Process a push.

        Args:
            key: of the array.
            received: the array, float32; only valid during the call.
            stored: the memory from which pulls of this key are answered, float32.
        """
        if key < self.layout.servers:
            self._status = stored
            if received.nbytes >= self._message_type.itemsize:  # else of a worker with other scalars, which is refused
                self.receive(*wire.unpack_message(received, self._message_type))
            return
        if key < 2 * self.layout.servers:
            self._mailbox = stored
            header = wire.header_of(received)  # of another kind, it only shows where the mailbox is
            if header["kind"] == wire.STATE and self._is_current(int(header["rank"]), int(header["nonce"])):
                self.model.restore(received)
            return
        if self.round_state.failure:
            return  # the sender may be the one whose model does not fit
        if self.uplink.holds(key) or self.downlink.holds(key):
            self._push_packed(key, received, stored)
            return
        channel, bucket = self.layout.locate(key)
        self.model.bind(channel, bucket, stored)
        header = wire.header_of(received)
        if channel and header["kind"] == wire.NOTHING:
            np.copyto(stored, received)  # a worker tells us which weights it begins with
        # Neither initial values, nor what comes from a worker whose slot another one has taken.
        if self.record_activity(int(header["rank"]), int(header["nonce"])) and header["kind"] == wire.PAYLOAD:
            self._stage(header, bucket.index, received)

    def _push_packed(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """Process a push of one of the codecs' keys, which has values or only announces the key."""
        header = wire.header_of(received)
        if not self.record_activity(int(header["rank"]), int(header["nonce"])):
            return
        if self.downlink.holds(key):
            self.downlink.open(key, stored)
        if header["kind"] == wire.PAYLOAD and self.uplink.holds(key):
            self._stage(header, _packed(int(header["bucket"])), received)

    def _stage(self, header: Any, number: int, received: np.ndarray) -> None:
        """Stage one array of a payload; complete the payload's commit if it has arrived before."""
        rank, sequence = int(header["rank"]), int(header["sequence"])
        if self.round_state.holds_back(rank):
            return  # the dead worker's payload counts, not its replacement's
        values, attempt = received[wire.HEADER_ELEMENTS :], int(header["index"])
        self._staging.put(rank, int(header["nonce"]), sequence, number, values, attempt)
        if rank in self._arriving:
            self._on_commit(self._arriving[rank])
            self._publish_status()

    def _is_current(self, rank: int, nonce: int) -> bool:
        return 0 <= rank < self.round_state.slots and self.round_state.nonce[rank] == nonce

    def receive(self, message: Any, others: Sequence[Any] = ()) -> None:
        """Process a worker's message.

        Args:
            message: wire.MESSAGE.
            others: with a commit, those of other workers of its host, whose payloads are in the
                same arrays.
        """
        kind, rank = int(message["kind"]), int(message["rank"])
        if self.record_activity(rank, int(message["nonce"])):
            if kind == wire.COMMIT:
                self._on_commit(Commit(message, others))
            elif kind in (wire.LEAVE, wire.DONE):
                if kind == wire.LEAVE:
                    self.model.forget_latest(rank)
                self.round_state.leave(rank, done=kind == wire.DONE)
            elif kind == wire.FOLLOW:
                self.round_state.follow(message)
            elif kind == wire.ASIDE:
                self.round_state.step_aside(message)
            elif kind == wire.STOP:
                self.round_state.stop()
            elif kind == wire.ABORT:
                self.round_state.abort(message["text"].decode())
            elif kind == wire.FETCH:
                assert self._mailbox is not None
                self.model.export(int(message["buckets"]), int(message["index"]), self._mailbox)
            if kind in (wire.LEAVE, wire.DONE, wire.FOLLOW, wire.ASIDE):
                self._apply(self.round_state.due())  # the round may not wait for anybody any more
        self._publish_status()

    def _on_commit(self, commit: Commit) -> None:
        message = commit.message
        rank, nonce, sequence = int(message["rank"]), int(message["nonce"]), int(message["sequence"])
        if sequence <= self.round_state.acknowledged[rank]:
            self._staging.discard(rank, up_to=sequence)
            return  # a repeated commit
        if self.round_state.holds_back(rank):
            return
        self._arriving[rank] = commit
        if not self._staging.complete(rank, nonce, sequence, int(message["buckets"]), int(message["index"])):
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
        elif self.round_state.together(message) and int(message["use"]) not in UNAWAITED_USES:
            self._add(commit)
        self._apply(due)

    def _on_group(self, commit: Commit) -> None:
        """Count all workers of a host, whose payloads are one sum, or none of them.

        None counts if one of them is not a member any more, has committed by itself, or has been
        replaced. The others see that in the status, and send their payloads themselves.
        """
        owner, messages, state = int(commit.message["rank"]), commit.all, self.round_state
        if not all(map(self._may_commit, messages)):
            self._staging.discard(owner)
            return
        due: list[int] = []
        for message in messages:
            due = state.commit(message, self._clock())
        if owner in state.pending and not state.failure:
            self._add(commit)
        else:  # all of them are too late, or their commits do not fit
            self._staging.discard(owner)
        self._apply(due)

    def _may_commit(self, message: Any) -> bool:
        """Return whether a worker is a member and has not committed in this exchange yet."""
        rank, state = int(message["rank"]), self.round_state
        current = self._is_current(rank, int(message["nonce"])) and state.member[rank]
        return bool(current and rank not in state.pending and message["sequence"] > state.acknowledged[rank])

    def _apply(self, ranks: list[int]) -> None:
        """Apply the commits of these ranks to the weights; end the run if these cannot be packed then."""
        if ranks and not self.round_state.failure:
            try:
                self._use(ranks)
                self.round_state.applied(ranks, self._clock())
            except CompressionError as error:
                self.abort(str(error))

    def _use(self, ranks: list[int]) -> None:
        messages = {rank: self.round_state.pending[rank].message for rank in ranks}
        if self.round_state.together(messages[ranks[0]]):
            for message in messages.values():
                if int(message["use"]) in UNAWAITED_USES:
                    self._add(Commit(message))
            total = self._sum.finish()
            samples = [int(message["samples"]) for message in messages.values()]
            divisors = {name: divisor(weighting, samples) for name, weighting in self._weightings.items()}
            self.model.update(total, self.round_state.scalars.terms(list(messages.values())), ranks, divisors)
            self._sum.clear()
        else:
            for rank in ranks:
                payload, packed = _split_payload(self._staging.pop(rank))
                self.model.update({**payload, **self.uplink.read(packed)}, messages[rank], [rank])
                self.memory.release([*payload.values(), *packed.values()])

    def _add(self, commit: Commit) -> None:
        """Add a payload, times its worker's factor in the mean, to the sum of its round.

        The payload of a host is added in the turn of the host's smallest rank. It is a sum with
        these factors already, except for packed weights, which are a mean (see `host_upload`).
        """
        owner, messages = int(commit.message["rank"]), commit.all
        factors = {
            name: sum(factor(weighting, int(message["samples"])) for message in messages)
            for name, weighting in self._weightings.items()
        }
        payload, packed = _split_payload(self._staging.pop(owner))

        def factor_of(index: int) -> float:
            return 1.0 if commit.others else factors[self.layout.buckets[index].vector]

        def unpack(get_sum: GetSum) -> None:
            self.uplink.add(packed, get_sum, factors[WEIGHTS])
            self.memory.release(packed.values())

        first, *others = (int(message["rank"]) for message in messages)
        self._sum.put(first, payload, self.round_state.counted, unpack, factor_of)
        for rank in others:
            self._sum.put(rank, {}, self.round_state.counted)

    def _publish_status(self) -> None:
        if self._status is not None:
            record = status_record(self.round_state)
            self._status.view(np.uint8)[: record.dtype.itemsize] = np.frombuffer(record.tobytes(), np.uint8)


def _packed(number: int) -> int:
    """Return the key in a staged payload of packed array `number`; those of buckets are 0 or more."""
    return ~number


def _split_payload(payload: dict[int, Array]) -> tuple[dict[int, Array], dict[int, Array]]:
    """Split a staged payload into unpacked buckets, by index, and packed arrays, by number."""
    buckets = {key: values for key, values in payload.items() if key >= 0}
    return buckets, {_packed(key): values for key, values in payload.items() if key < 0}
