"""Top-k: sparse messages of the largest values up, the sparse mean back.

A worker sends the largest of the gathered values, as in gradient dropping, with keys of its own.
The answer is one message for all workers, in keys that they share: the *new weights* at the places
that have changed, not their difference, so that nothing is rounded and nothing can be added twice.
Where more has changed than all workers together may have sent (momentum and weight decay on the
server move every weight), or more than is wanted (`Compression.back`), the answer has the places
that have changed most, and the others stay for later.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..base import ModelSink, Source
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Layout
from .base import (
    Codec,
    Common,
    Decoder,
    Downlink,
    ErrorFeedbackEncoder,
    GetBuffer,
    GetSum,
    PackedArray,
    UpdatedBucket,
    Uplink,
    require_vector,
)
from .outbox import Outbox, step_of
from .quantization import Compression
from .shards import ServerShard
from .sparse import Sparse, bounds_of, check_finite, join, kernels
from .sparse.compressors import GradientDropping
from .sparse.message_format import HEADER, MessageFormat
from .sparse.selection import Selection, keep_count, top_k
from .sparse_messages import PieceKeys, SparseMessages, joined_pieces
from .uncompressed import sizes_of

#: Share of a segment beyond which its answer is dense, which takes 4 bytes a value instead of 5.
DENSE = 0.8


class TopKCodec(Codec):
    """Sparse messages of the largest values.

    Args:
        compression: "topk".
        layout: how the model is cut into buckets.
        slots: number of workers; the keys behind theirs are for the answers.
        tensors: sizes of the tensors that the weights consist of.
    """

    def __init__(self, compression: Compression, layout: Layout, slots: int, tensors: Sequence[int]) -> None:
        self.name = str(compression)
        self.compression, self.layout, self.slots, self.tensors = compression, layout, slots, tensors
        self.keys = PieceKeys(layout, slots + 1)

    def encoder(self, rank: int) -> "TopKEncoder":
        """See `Codec.encoder`."""
        return TopKEncoder(self, rank)

    def decoder(self, rank: int) -> "TopKDecoder":
        """See `Codec.decoder`."""
        return TopKDecoder(self)

    def uplink(self, server: int) -> "TopKUplink":
        """See `Codec.uplink`."""
        return TopKUplink(self, server)

    def downlink(self, server: int) -> "TopKDownlink":
        """See `Codec.downlink`."""
        return TopKDownlink(self, server)

    @cached_property
    def messages(self) -> SparseMessages:
        """Splits, codes and cuts the messages."""
        return SparseMessages(self.layout, self.keys, self.tensors, "float32")

    def sizes(self, server: int, ratio: float) -> list[int]:
        """Return sizes of the pieces of a message with this share of a server's values.

        The values are taken to be evenly spread.
        """
        values = sum(sizes_of(self.layout.of(WEIGHTS, server)))
        index = min(4.0, 1 / (1 - (1 - ratio) ** 255))  # a byte for a distance below 255, and one more for every 255
        elements = -(-(HEADER.itemsize + int(values * min(4.0, ratio * (4 + index)))) // 4)
        return [size for _, size in self.keys.pieces(elements)]


class TopKEncoder(ErrorFeedbackEncoder):
    """Sends the largest values of each tensor; its memory is two vectors as long as the weights."""

    def __init__(self, codec: TopKCodec, rank: int) -> None:
        self._codec, self._rank = codec, rank

    @cached_property
    def _dropping(self) -> GradientDropping:
        return GradientDropping(Selection(self._codec.tensors, self._codec.compression.ratio))

    @cached_property
    def _gathered(self) -> np.ndarray:
        return np.empty(self._codec.layout.sizes[WEIGHTS], np.float32)

    @property
    def rest(self) -> np.ndarray:
        """What has not been sent yet."""
        return self._dropping.rest

    def write(self, values: Source | Sparse, buffer: GetBuffer) -> Iterator[PackedArray]:
        """See `Encoder.write`."""
        require_vector(values, self._codec.name).read(0, self._gathered.size, self._gathered)
        check_finite(self._gathered)
        step = self._dropping.compress(self._gathered, 1.0)
        # The places of pieces are behind those of the buckets.
        yield from self._codec.messages.pack(step, self._rank, len(self._codec.layout.buckets), buffer)

    def sizes(self, server: int) -> list[int]:
        """See `Encoder.sizes`."""
        return self._codec.sizes(server, self._codec.compression.ratio)


class TopKDecoder(Decoder):
    """Puts new values into the common weights."""

    keeps_common = True
    lossy = True

    def __init__(self, codec: TopKCodec) -> None:
        self._codec = codec
        self._common: Common = {}
        self._steps: list[int] = []  # step of the common weights, for each server

    def begin(self, common: Common, steps: Mapping[int, int]) -> None:
        """See `Decoder.begin`; an answer may be put into buckets that have it already."""
        layout = self._codec.layout
        self._common = common
        self._steps = [
            min((steps[bucket.index] for bucket in layout.of(WEIGHTS, server)), default=0)
            for server in range(layout.servers)
        ]

    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """See `Decoder.wanted`."""
        return self._codec.messages.wanted(server, self._codec.slots, length)

    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: ModelSink) -> None:
        """See `Decoder.read`."""
        pieces, at = [], self._steps[server]
        for array in arrays:
            self._steps[server] = step_of(array, at)
            pieces.append(array[wire.HEADER_ELEMENTS :])
        indices, values = self._codec.messages.read(pieces, length, server) if length else join([])
        for bucket in self._codec.layout.of(WEIGHTS, server):
            common = self._common[bucket.index]
            first, last = np.searchsorted(indices, (bucket.start, bucket.stop))
            common[indices[first:last] - bucket.start] = values[first:last]
            model.write(WEIGHTS, bucket.start, common)

    def answer_sizes(self, server: int) -> list[int]:
        """See `Decoder.answer_sizes`; as if no two workers sent the same place."""
        compression = self._codec.compression
        return self._codec.sizes(server, compression.back or min(1.0, compression.ratio * self._codec.slots))


class TopKUplink(Uplink):
    """Adds the entries of sparse messages to sums."""

    def __init__(self, codec: TopKCodec, server: int) -> None:
        self.name, self._keys = codec.name, codec.keys
        self._shard = ServerShard(codec.layout, server, bounds_of(codec.tensors))
        self._format = MessageFormat(self._shard.bounds)

    def holds(self, key: int) -> bool:
        """See `Uplink.holds`."""
        return self._keys.locate(key) is not None

    def add(self, packed: Mapping[int, np.ndarray], get_sum: GetSum, factor: float) -> None:
        """See `Uplink.add`."""
        if not packed:
            return
        entries = self._format.decode(joined_pieces([packed[place] for place in sorted(packed)]))
        for bucket, (_, (indices, values)) in zip(
            self._shard.buckets, self._shard.split_by_bucket(entries), strict=True
        ):
            target, fresh = get_sum(bucket.index, bucket.stop - bucket.start)
            if fresh:
                target.fill(0)
            kernels.add(target, indices, values * np.float32(factor))


class TopKDownlink(Downlink):
    """Sends all workers the weights that have changed most.

    Its memory is one more copy of the weights, the exact ones.
    """

    keeps_exact = True

    def __init__(self, codec: TopKCodec, server: int) -> None:
        compression = codec.compression
        self.name, self._keys = codec.name, codec.keys
        self._rank, self._server = codec.slots, server
        self._shard = ServerShard(codec.layout, server, bounds_of(codec.tensors))
        self._format = MessageFormat(self._shard.bounds)
        self._back = bool(compression.back)
        ratio = compression.back or compression.ratio
        self._most = [keep_count(int(stop - start), ratio) for start, stop in pairwise(self._shard.bounds)]
        self._outbox = Outbox()

    def holds(self, key: int) -> bool:
        """See `Downlink.holds`."""
        return self._keys.locate(key) is not None

    def open(self, key: int, stored: np.ndarray) -> None:
        """See `Downlink.open`."""
        self._outbox.open(key, stored)

    def publish(self, updated: Iterable[UpdatedBucket], ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """See `Downlink.publish`; all workers get the same answer."""
        self._outbox.forget()
        known = {each.bucket: each for each in updated}
        if not known:
            return
        kept = [known[bucket.index] for bucket in self._shard.buckets]
        changed = self._shard.merge_buckets([_difference(each) for each in kept])
        places = self._chosen(changed, len(ranks))
        sent = []
        for each, (_, (indices, _)) in zip(kept, self._shard.split_by_bucket((places, places)), strict=True):
            each.common[indices] = each.weights[indices]
            sent.append((indices, each.common[indices]))
        message = self._format.message(self._shard.merge_buckets(sent))
        pieces = self._keys.pieces(-(-message.size // 4))
        keys = [(self._keys.key(self._rank, number, self._server), size) for number, size in pieces]
        message.pour([self._outbox.values(key, size) for key, size in keys])
        for place, (key, _) in enumerate(keys):
            self._outbox.stamp(key, step, place)
        lengths[:] = message.size

    def _chosen(self, changed: Sparse, payloads: int) -> np.ndarray:
        """Return the positions in an answer.

        Of each segment these are the ones that have changed most, or all of them.
        """
        indices, values = changed
        edges = np.searchsorted(indices, self._shard.bounds)
        chosen = []
        for segment, (first, last) in enumerate(pairwise(edges)):
            start, stop = self._shard.bounds[segment], self._shard.bounds[segment + 1]
            most, found = self._most[segment] * (1 if self._back else payloads), indices[first:last]
            if min(most, found.size) >= DENSE * (stop - start):
                found = np.arange(start, stop)
            elif found.size > most:
                found = found[top_k(values[first:last], most)]
            chosen.append(found)
        return np.concatenate(chosen) if chosen else indices


def _difference(updated: UpdatedBucket) -> Sparse:
    """Return where and by how much the exact weights and the common ones differ."""
    size = updated.common.size
    indices, values = np.empty(size, np.int64), np.empty(size, np.float32)
    found = kernels.difference_everywhere(updated.weights, updated.common, indices, values)
    return indices[:found].copy(), values[:found].copy()
