"""Buckets of weights packed into a fixed number of bytes: fp16, 4bit and 2bit.

Every bucket has a further key for each compression, of its packed size, for payloads and answers.
The keys of a compression form a channel of the layout that all workers share, like channel 0.

All workers have the same *common* weights, bit for bit. The server has them, too, and also the
exact weights that the rule works on. After every round it packs the difference between the two, one
message for all workers, and adds the packed difference to the common weights. The rounding error
remains in the difference for the next round (error feedback). Every worker adds the rounding error
of its payload to its next payload.

The header of an answer contains the step that it leads to, the number of changes of the weights on
that server. A replacement of a worker that died while servers were answering may receive an answer
that its weights already include, and skips it.
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
)
from .outbox import Outbox, step_of
from .quantization import Quantizer, compile_loops, quantizer_of
from .shards import ServerShard
from .sparse import bounds_of
from .uncompressed import sizes_of


class Packing:
    """One compression of the buckets, and the keys of their packed values.

    Args:
        compression: "fp16", "4bit" or "2bit".
        layout: how the model is cut into buckets.
        tensors: sizes of the tensors that the weights consist of.
        channel: of the keys.
    """

    def __init__(self, compression: str, layout: Layout, tensors: Sequence[int], channel: int) -> None:
        self.compression = compression
        self._layout, self._tensors, self._channel = layout, tensors, channel

    @cached_property
    def by_server(self) -> list[dict[int, tuple[Bucket, Quantizer]]]:
        """For each server, index of each bucket of weights → the bucket and its quantizer."""
        compile_loops(self.compression)
        return [self._of(server) for server in range(self._layout.servers)]

    def _of(self, server: int) -> dict[int, tuple[Bucket, Quantizer]]:
        shard = ServerShard(self._layout, server, bounds_of(self._tensors))
        return {
            bucket.index: (bucket, quantizer_of(self.compression, shard.segments(number)))
            for number, bucket in enumerate(shard.buckets)
        }

    def key(self, bucket: Bucket) -> int:
        """Return the key of a packed bucket."""
        return self._layout.key(bucket, self._channel)

    def sizes(self, server: int) -> list[int]:
        """Return the packed sizes of a server's buckets, assuming one segment in each."""
        sizes = sizes_of(self._layout.of(WEIGHTS, server))
        return [quantizer_of(self.compression, [size]).elements for size in sizes]


class BucketCodec(Codec):
    """Packs bucket by bucket, with one of several compressions in each exchange.

    MXNet binds a key to the byte size of its first value, so every compression has a channel of its
    own. They share the common weights and the residuals. An answer has the largest number of a
    compression in its round, which stands in the status.

    Args:
        compressions: the finest one first.
        layout: how the model is cut into buckets.
        tensors: sizes of the tensors that the weights consist of.
    """

    def __init__(self, compressions: Sequence[str], layout: Layout, tensors: Sequence[int]) -> None:
        self.layout = layout
        self.packings = [
            Packing(compression, layout, tensors, channel) for channel, compression in enumerate(compressions, start=1)
        ]

    def keys(self, server: int) -> set[int]:
        """Return the keys of a server's packed buckets."""
        buckets = self.layout.of(WEIGHTS, server)
        return {packing.key(bucket) for packing in self.packings for bucket in buckets}

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


class BucketEncoder(Encoder):
    """Packs each bucket of a payload, and adds the residual to the next one (error feedback)."""

    def __init__(self, codec: BucketCodec) -> None:
        self._codec = codec

    @cached_property
    def residual(self) -> np.ndarray:
        """The residual, of the weights' size; may be changed in place."""
        return np.zeros(self._codec.layout.sizes[WEIGHTS], np.float32)

    @override
    def state(self) -> dict[str, Any]:
        return {"rest": self.residual}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        np.copyto(self.residual, state["rest"])

    @cached_property
    def _scratch(self) -> np.ndarray:
        layout = self._codec.layout
        return np.empty(min(layout.bucket_elements, layout.sizes[WEIGHTS]), np.float32)

    @override
    def write(self, values: Source, buffer: GetBuffer, compression: int = 0) -> Iterator[PackedArray]:
        packing, first = self._codec.packings[compression], compression * len(self._codec.layout.buckets)
        buckets = [bucket for server in packing.by_server for bucket in server.values()]
        for bucket, quantizer in sorted(buckets, key=lambda pair: pair[0].index):
            part = self._scratch[: bucket.stop - bucket.start]
            values.read(bucket.start, bucket.stop, part)
            key = packing.key(bucket)
            quantizer.pack_with(self.residual[bucket.start : bucket.stop], part, buffer(key, quantizer.elements))
            yield PackedArray(bucket.shard, key, first + bucket.index)

    @override
    def sizes(self, server: int, compression: int = 0) -> list[int]:
        return self._codec.packings[compression].sizes(server)


class BucketDecoder(Decoder):
    """Adds packed differences to the common weights."""

    keeps_common = True
    lossy = True

    def __init__(self, codec: BucketCodec) -> None:
        self._packings = codec.packings
        self._common: Common = {}
        self._steps: dict[int, int] = {}  # bucket → step of its common weights

    @override
    def begin(self, common: Common, steps: Mapping[int, int]) -> None:
        self._common, self._steps = common, dict(steps)

    @override
    def answer_arrays(self, server: int, form: int) -> list[tuple[int, int]]:
        packing = self._packings[form]
        return [(packing.key(bucket), quantizer.elements) for bucket, quantizer in packing.by_server[server].values()]

    @override
    def read(self, server: int, arrays: Iterable[np.ndarray], form: int, model: ModelSink) -> None:
        for (bucket, quantizer), array in zip(self._packings[form].by_server[server].values(), arrays, strict=True):
            step_before = self._steps[bucket.index]
            step = step_of(array, step_before)
            common = self._common[bucket.index]
            if step > step_before:
                quantizer.add(array[wire.HEADER_ELEMENTS :], common)
                self._steps[bucket.index] = step
            model.write(WEIGHTS, bucket.start, common)

    @override
    def answer_sizes(self, server: int, form: int) -> list[int]:
        return self._packings[form].sizes(server)


class BucketUplink(Uplink):
    """Adds packed buckets to sums."""

    def __init__(self, codec: BucketCodec, server: int) -> None:
        self._packed = [packing.by_server[server] for packing in codec.packings]
        self._keys = codec.keys(server)
        self._buckets = len(codec.layout.buckets)
        largest = max(sizes_of(codec.layout.of(WEIGHTS, server)), default=0)
        self._scratch = np.empty(largest, np.float32)

    @override
    def holds(self, key: int) -> bool:
        return key in self._keys

    @override
    def add(self, packed: Mapping[int, np.ndarray], get_sum: GetSum, factor: float) -> None:
        for number, array in packed.items():
            compression, index = divmod(number, self._buckets)
            bucket, quantizer = self._packed[compression][index]
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
    """Packs the difference between the exact and the common weights, the same for all workers."""

    keeps_exact = True

    def __init__(self, codec: BucketCodec, server: int) -> None:
        self._packings, self._server = codec.packings, server
        self._held = codec.keys(server)
        self._outbox = Outbox()
        self._thread = ThreadPoolExecutor(1, "pack")
        self._tasks: dict[int, tuple[int, Future[None]]] = {}  # index of a bucket → its key, and the task that packs it

    @override
    def holds(self, key: int) -> bool:
        return key in self._held

    @override
    def open(self, key: int, stored: np.ndarray) -> None:
        self._outbox.open(key, stored)

    def pack(self, updated: UpdatedBucket) -> None:
        """See `Downlink.pack`; a thread packs while the rule works on the next bucket."""
        if not self._tasks:
            self._outbox.forget()
        packing = self._packings[updated.compression]
        bucket, quantizer = packing.by_server[self._server][updated.bucket]
        key = packing.key(bucket)
        buffer = self._outbox.values(key, quantizer.elements)
        task = self._thread.submit(quantizer.step, updated.weights, updated.common, buffer)
        self._tasks[updated.bucket] = key, task

    @override
    def publish(self, ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        tasks, self._tasks = self._tasks, {}
        for _, task in tasks.values():
            task.result()
        for index, (key, _) in tasks.items():
            self._outbox.stamp(key, step, index)
