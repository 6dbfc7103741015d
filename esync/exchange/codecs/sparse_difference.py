"""The codec of DGS and related methods: sparse steps to the servers, sparse differences back.

A worker sends a sparse step, which is subtracted from the weights at once. The answer to it
contains the weights that have changed since the worker's last answer, or the largest differences
(`sparse.tracker`). Steps and answers use keys of that worker alone. The dense model is published,
too, for workers that join.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from typing_extensions import override

from ...rules import Step
from ..base import ModelSink
from ..protocol import wire
from ..protocol.layout import Layout
from .base import Codec, Decoder, Downlink, Encoder, GetBuffer, PackedArray, UpdatedBucket, Uplink
from .outbox import Outbox
from .shards import ServerShard
from .sparse import Differences, Sparse, bounds_of, split
from .sparse.changed_values import ChangeTracker
from .sparse.differences import DifferenceTracker
from .sparse.message_format import MessageFormat
from .sparse.selection import Selection
from .sparse.tracker import Tracker
from .sparse_messages import PieceKeys, SparseMessages, joined_pieces

log = logging.getLogger(__name__)


class DifferenceCodec(Codec):
    """Sparse steps and differences.

    Args:
        differences: the kind of the messages.
        layout: how the model is cut into buckets.
        slots: number of workers.
        tensors: sizes of the tensors that the weights consist of.
    """

    def __init__(self, differences: Differences, layout: Layout, slots: int, tensors: Sequence[int]) -> None:
        self.differences, self.slots = differences, slots
        self._layout, self._tensors = layout, tensors
        self.keys = PieceKeys(layout, slots)

    @cached_property
    def messages(self) -> SparseMessages:
        """The conversion between sparse vectors and messages."""
        return SparseMessages(self._layout, self.keys, self._tensors, self.differences.values)

    def shard(self, server: int) -> ServerShard:
        """Return the part of the weights that a server holds."""
        return ServerShard(self._layout, server, bounds_of(self._tensors))

    @override
    def encoder(self, rank: int) -> "StepEncoder":
        return StepEncoder(self.messages, rank)

    @override
    def decoder(self, rank: int) -> "DifferenceDecoder":
        return DifferenceDecoder(self.messages, rank, self.differences.replace)

    @override
    def uplink(self, server: int) -> "StepUplink":
        return StepUplink(self, server)

    @override
    def downlink(self, server: int) -> "DifferenceDownlink":
        return DifferenceDownlink(self, server)


class StepEncoder(Encoder):
    """Sends the entries of a step."""

    def __init__(self, messages: SparseMessages, rank: int) -> None:
        self._messages, self._rank = messages, rank

    @override
    def write(self, values: Sparse, buffer: GetBuffer, compression: int = 0) -> Iterator[PackedArray]:
        yield from self._messages.pack(values, self._rank, buffer)


class DifferenceDecoder(Decoder):
    """Adds differences to the weights, or replaces weights by their new values."""

    def __init__(self, messages: SparseMessages, rank: int, replace: bool) -> None:
        self._messages, self._rank, self._replace = messages, rank, replace
        self.lossy = not replace

    @override
    def answer_arrays(self, server: int, form: int) -> list[tuple[int, int]]:
        return self._messages.piece_arrays(server, self._rank, form)

    @override
    def read(self, server: int, arrays: Iterable[np.ndarray], form: int, model: ModelSink) -> None:
        pieces = [array[wire.HEADER_ELEMENTS :] for array in arrays]
        if pieces:
            entries = self._messages.read(pieces, form, server)
            (model.put if self._replace else model.add)(entries)


def subtract(weights: np.ndarray, entries: Sparse, state: None, step: Step) -> tuple[np.ndarray, None]:
    """Subtract the entries of a step from the weights in place: the rule of sparse steps."""
    indices, values = entries
    weights[indices] -= values
    return weights, state


class StepUplink(Uplink):
    """Reads sparse steps."""

    rule = staticmethod(subtract)

    def __init__(self, codec: DifferenceCodec, server: int) -> None:
        self._keys = codec.keys
        self._shard = codec.shard(server)
        self._format = MessageFormat(self._shard.bounds, codec.differences.values)

    @override
    def holds(self, key: int) -> bool:
        return self._keys.locate(key) is not None

    @override
    def read(self, packed: Mapping[int, np.ndarray]) -> dict[int, Sparse]:
        """See `Uplink.read`; the values are the entries of each bucket."""
        entries = self._format.decode(joined_pieces([packed[number] for number in sorted(packed)]))
        parts = zip(self._shard.buckets, split(entries, self._shard.offsets), strict=True)
        return {bucket.index: part for bucket, part in parts}


class DifferenceDownlink(Downlink):
    """Tracks the differences between the weights of every worker and those of the server.

    If answers contain differences, the private channel of each worker contains exactly the weights
    that it has: the worker initializes them when it joins, and every answer is added to them.
    """

    def __init__(self, codec: DifferenceCodec, server: int) -> None:
        differences, shard = codec.differences, codec.shard(server)
        self._keys, self._shard, self._server = codec.keys, shard, server
        self._parts = {bucket.index: part for part, bucket in enumerate(shard.buckets)}
        self._tracker: Tracker
        message_format = MessageFormat(shard.bounds, differences.values)
        if differences.replace:
            self._tracker = ChangeTracker(message_format, shard.offsets, codec.slots)
        else:
            sizes, ratio = np.diff(shard.bounds).tolist(), differences.secondary_ratio
            secondary = Selection(sizes, ratio, differences.dense_below) if sizes and ratio else None
            self._tracker = DifferenceTracker(message_format, shard.offsets, codec.slots, secondary)
        self._outbox = Outbox()
        self._changed: list[np.ndarray] = []  # indices of weights that have changed since the last answers

    @property
    def memory_bytes(self) -> int:
        """Bytes of the model, each worker's weights, pending indices, and pieces of messages."""
        return self._tracker.memory + self._outbox.nbytes

    @override
    def holds(self, key: int) -> bool:
        return self._keys.locate(key) is not None

    @override
    def open(self, key: int, stored: np.ndarray) -> None:
        self._outbox.open(key, stored)

    @override
    def bind_weights(self, index: int, weights: np.ndarray) -> None:
        self._tracker.bind_weights(self._parts[index], weights)

    @override
    def init_channel(self, rank: int, index: int, sent: np.ndarray) -> None:
        self._tracker.init_weights(rank, self._parts[index], sent)
        if index == self._shard.buckets[-1].index:
            log.info("worker %d has the model; %.0f MB are kept", rank, self.memory_bytes / 1e6)

    def join(self, rank: int, lengths: np.ndarray) -> None:
        """See `Downlink.join`; the answer to the slot's former holder is discarded."""
        self._tracker.join(rank)
        self._forget(rank)
        lengths[rank] = 0
        log.info("worker %d takes part; %.0f MB are kept", rank, self.memory_bytes / 1e6)

    @override
    def pack(self, updated: UpdatedBucket) -> None:
        self._changed.append(updated.value[0] + self._shard.offsets[self._parts[updated.bucket]])

    def publish(self, ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """See `Downlink.publish`; every worker receives a different answer."""
        changed, self._changed = self._changed, []
        self._tracker.changed(np.concatenate(changed) if changed else np.empty(0, np.int64))
        for rank in ranks:
            self.publish_to(rank, lengths)

    @override
    def publish_to(self, rank: int, lengths: np.ndarray) -> None:
        self._forget(rank)
        answer = self._tracker.answer(rank)
        lengths[rank] = answer.size
        pieces = self._keys.pieces(-(-answer.size // 4))
        answer.copy_to(
            [self._outbox.values(self._keys.key(rank, number, self._server), size) for number, size in pieces]
        )

    def _forget(self, rank: int) -> None:
        """Discard an earlier answer to a worker that is not bound to keys yet."""
        self._outbox.forget(lambda key: (self._keys.locate(key) or (None,))[0] == rank)
