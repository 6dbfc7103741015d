"""Buckets of weights packed into a fixed number of bytes: fp16, 4bit and 2bit.

Every bucket has a second key, of its packed size, for payloads and answers. These keys form a
channel of the layout that all workers share, like channel 0.

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
        compression: "fp16", "4bit" or "2bit".
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
        """For each server, index of each bucket of weights → the bucket and its quantizer."""
        compile_loops(self.compression)
        return [self.of(server) for server in range(self.layout.servers)]

    def of(self, server: int) -> dict[int, tuple[Bucket, Quantizer]]:
        """Return index of each bucket of weights on a server → the bucket and its quantizer."""
        shard = ServerShard(self.layout, server, bounds_of(self._tensors))
        return {
            bucket.index: (bucket, quantizer_of(self.compression, shard.segments(number)))
            for number, bucket in enumerate(shard.buckets)
        }

    def key(self, bucket: Bucket) -> int:
        """Return the key of a packed bucket."""
        return self.layout.key(bucket, self._channel)

    def sizes(self, server: int) -> list[int]:
        """Return the packed sizes of a server's buckets, assuming one segment in each."""
        sizes = sizes_of(self.layout.of(WEIGHTS, server))
        return [quantizer_of(self.compression, [size]).elements for size in sizes]


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
    def write(self, values: Source | Sparse, buffer: GetBuffer) -> Iterator[PackedArray]:
        source = require_vector(values, self._codec.name)
        buckets = [bucket for server in self._codec.by_server for bucket in server.values()]
        for bucket, quantizer in sorted(buckets, key=lambda pair: pair[0].index):
            part = self._scratch[: bucket.stop - bucket.start]
            source.read(bucket.start, bucket.stop, part)
            key = self._codec.key(bucket)
            quantizer.pack_with(self.residual[bucket.start : bucket.stop], part, buffer(key, quantizer.elements))
            yield PackedArray(bucket.shard, key, bucket.index)

    @override
    def sizes(self, server: int) -> list[int]:
        return self._codec.sizes(server)


class BucketDecoder(Decoder):
    """Adds packed differences to the common weights."""

    keeps_common = True
    lossy = True

    def __init__(self, codec: BucketCodec) -> None:
        self._codec = codec
        self._common: Common = {}
        self._steps: dict[int, int] = {}  # bucket → step of its common weights

    @override
    def begin(self, common: Common, steps: Mapping[int, int]) -> None:
        self._common, self._steps = common, dict(steps)

    def answer_arrays(self, server: int, length: int) -> list[tuple[int, int]]:
        """See `Decoder.answer_arrays`; the sizes do not vary."""
        return [
            (self._codec.key(bucket), quantizer.elements)
            for bucket, quantizer in self._codec.by_server[server].values()
        ]

    @override
    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: ModelSink) -> None:
        for (bucket, quantizer), array in zip(self._codec.by_server[server].values(), arrays, strict=True):
            step_before = self._steps[bucket.index]
            step = step_of(array, step_before)
            common = self._common[bucket.index]
            if step > step_before:
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
    """Packs the difference between the exact and the common weights, the same for all workers."""

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
        """See `Downlink.pack`; a thread packs while the rule works on the next bucket."""
        if not self._packing:
            self._outbox.forget()
        quantizer = self._quantizers[updated.bucket][1]
        buffer = self._outbox.values(self._keys[updated.bucket], quantizer.elements)
        task = self._thread.submit(quantizer.step, updated.weights, updated.common, buffer)
        self._packing[updated.bucket] = task

    def publish(self, ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """See `Downlink.publish`; the lengths do not vary."""
        packing, self._packing = self._packing, {}
        for task in packing.values():
            task.result()
        for index in packing:
            self._outbox.stamp(self._keys[index], step, index)
