"""Buckets of weights packed into a fixed number of bytes: fp16 and 2bit.

Every bucket has one more key, of its packed size, for each way; where both ways pack alike, one key
carries both. These keys are a channel of the layout that all workers share, like channel 0.

All workers hold the same weights, bit for bit: the *common* ones, which the server knows. Beside
them it keeps the weights that the rule works on, exact and in float32. After every round it packs
the step that leads the common weights nearer to them, the same message for all, and takes the step
itself. What that message could not express is still in the difference of the two (error feedback on
the way down). On the way up every worker adds what it could not express to its next payload.

An answer's header has the step that it leads to: the number of times that the weights have changed
on that server. A worker that has taken the slot of one that died between two servers may meet an
answer that is in its weights already; it leaves that one out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from ..base import ModelSink, Source
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Bucket, Layout
from .base import (
    Codec,
    Common,
    Decoder,
    Downlink,
    Encoder,
    GetBuffer,
    GetSum,
    PackedArray,
    UpdatedBucket,
    Uplink,
    require_vector,
)
from .outbox import Outbox, step_of
from .quantization import Quantizer, compile_loops, quantizer_of
from .shards import ServerShard
from .sparse import Sparse, bounds_of
from .uncompressed import sizes_of


class BucketCodec(Codec):
    """Packs bucket by bucket.

    Args:
        compression: "fp16" or "2bit".
        layout: how the model is cut into buckets.
        tensors: sizes of the tensors that the weights consist of.
        channel: of the keys.
    """

    def __init__(self, compression: str, layout: Layout, tensors: Sequence[int], channel: int) -> None:
        self.name = self.compression = compression
        self.layout = layout
        self._tensors, self._channel = tensors, channel

    @override
    def encoder(self, rank: int) -> "BucketEncoder":
        return BucketEncoder(self)

    @override
    def decoder(self, rank: int) -> "BucketDecoder":
        return BucketDecoder(self)

    @override
    def uplink(self, server: int) -> "BucketUplink":
        return BucketUplink(self, server)

    @override
    def downlink(self, server: int) -> "BucketDownlink":
        return BucketDownlink(self, server)

    @cached_property
    def by_server(self) -> list[dict[int, tuple[Bucket, Quantizer]]]:
        """The buckets of weights of each server, and their quantizers, by index."""
        compile_loops(self.compression)
        return [self.of(server) for server in range(self.layout.servers)]

    def of(self, server: int) -> dict[int, tuple[Bucket, Quantizer]]:
        """Return the buckets of one server, and their quantizers, by index."""
        shard = ServerShard(self.layout, server, bounds_of(self._tensors))
        return {
            bucket.index: (bucket, quantizer_of(self.compression, shard.segments(place)))
            for place, bucket in enumerate(shard.buckets)
        }

    def key(self, bucket: Bucket) -> int:
        """Return the key of a packed bucket."""
        return self.layout.key(bucket, self._channel)

    def sizes(self, server: int) -> list[int]:
        """Return packed sizes of a server's buckets, as if each were a part of one tensor."""
        sizes = sizes_of(self.layout.of(WEIGHTS, server))
        return [quantizer_of(self.compression, [size]).elements for size in sizes]


class BucketEncoder(Encoder):
    """Packs each bucket of a payload, with error feedback.

    What a payload cannot express is kept, and added to the next one: one vector as long as the
    weights.
    """

    def __init__(self, codec: BucketCodec) -> None:
        self._codec = codec

    @cached_property
    def rest(self) -> np.ndarray:
        """The residual: what has not been sent yet; may be changed in place."""
        return np.zeros(self._codec.layout.sizes[WEIGHTS], np.float32)

    @override
    def state(self) -> dict[str, Any]:
        return {"rest": self.rest}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        np.copyto(self.rest, state["rest"])

    @cached_property
    def _scratch(self) -> np.ndarray:
        layout = self._codec.layout
        return np.empty(min(layout.bucket_elements, layout.sizes[WEIGHTS]), np.float32)

    @override
    def write(self, values: Source | Sparse, buffer: GetBuffer) -> Iterator[PackedArray]:
        source = require_vector(values, self._codec.name)
        buckets = [bucket for server in self._codec.by_server for bucket in server.values()]
        for bucket, quantizer in sorted(buckets, key=lambda pair: pair[0].index):
            part = self._scratch[: bucket.stop - bucket.start]
            source.read(bucket.start, bucket.stop, part)
            key = self._codec.key(bucket)
            quantizer.pack_with(self.rest[bucket.start : bucket.stop], part, buffer(key, quantizer.elements))
            yield PackedArray(bucket.shard, key, bucket.index)

    @override
    def sizes(self, server: int) -> list[int]:
        return self._codec.sizes(server)


class BucketDecoder(Decoder):
    """Adds packed steps to the common weights."""

    keeps_common = True
    lossy = True

    def __init__(self, codec: BucketCodec) -> None:
        self._codec = codec
        self._common: Common = {}
        self._steps: dict[int, int] = {}  # bucket → the step that its common weights are at

    @override
    def begin(self, common: Common, steps: Mapping[int, int]) -> None:
        self._common, self._steps = common, dict(steps)

    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """See `Decoder.wanted`; the length is always the same."""
        return [
            (self._codec.key(bucket), quantizer.elements)
            for bucket, quantizer in self._codec.by_server[server].values()
        ]

    @override
    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: ModelSink) -> None:
        for (bucket, quantizer), array in zip(self._codec.by_server[server].values(), arrays, strict=True):
            at = self._steps[bucket.index]
            step = step_of(array, at)
            common = self._common[bucket.index]
            if step > at:
                quantizer.add(array[wire.HEADER_ELEMENTS :], common)
                self._steps[bucket.index] = step
            model.write(WEIGHTS, bucket.start, common)

    @override
    def answer_sizes(self, server: int) -> list[int]:
        return self._codec.sizes(server)


class BucketUplink(Uplink):
    """Adds packed buckets to sums."""

    def __init__(self, codec: BucketCodec, server: int) -> None:
        compile_loops(codec.compression)
        self._quantizers = codec.of(server)
        self._keys = {codec.key(bucket) for bucket, _ in self._quantizers.values()}
        largest = max(sizes_of(bucket for bucket, _ in self._quantizers.values()), default=0)
        self._scratch = np.empty(largest, np.float32)

    @override
    def holds(self, key: int) -> bool:
        return key in self._keys

    @override
    def add(self, packed: Mapping[int, np.ndarray], get_sum: GetSum, factor: float) -> None:
        for index, array in packed.items():
            bucket, quantizer = self._quantizers[index]
            target, fresh = get_sum(index, bucket.stop - bucket.start)
            values = target if fresh else self._scratch[: target.size]
            if factor == 1 and not fresh:
                quantizer.add(array, target)
                continue
            quantizer.put(array, values)
            if factor != 1:
                values *= np.float32(factor)
            if not fresh:
                target += values


class BucketDownlink(Downlink):
    """Leads the common weights towards the exact ones by packed steps, the same for all workers.

    Its memory is one more copy of the weights, the exact ones.
    """

    keeps_exact = True

    def __init__(self, codec: BucketCodec, server: int) -> None:
        compile_loops(codec.compression)
        self._quantizers = codec.of(server)
        self._keys = {index: codec.key(bucket) for index, (bucket, _) in self._quantizers.items()}
        self._held = set(self._keys.values())
        self._outbox = Outbox()
        self._thread = ThreadPoolExecutor(1, "pack")
        self._packing: dict[int, Future[None]] = {}  # index of a bucket → its packing

    @override
    def holds(self, key: int) -> bool:
        return key in self._held

    @override
    def open(self, key: int, stored: np.ndarray) -> None:
        self._outbox.open(key, stored)

    def pack(self, updated: UpdatedBucket) -> None:
        """See `Downlink.pack`; a thread does it while the rule works on the next bucket."""
        if not self._packing:
            self._outbox.forget()
        quantizer = self._quantizers[updated.bucket][1]
        buffer = self._outbox.values(self._keys[updated.bucket], quantizer.elements)
        task = self._thread.submit(quantizer.step, updated.weights, updated.common, buffer)
        self._packing[updated.bucket] = task

    def publish(self, ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """See `Downlink.publish`; the lengths are always the same."""
        packing, self._packing = self._packing, {}
        for task in packing.values():
            task.result()
        for index in packing:
            self._outbox.stamp(self._keys[index], step, index)
