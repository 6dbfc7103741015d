"""Compressed exchanges bucket by bucket: every bucket of weights has one more key, of its packed size, for both ways.

These keys are channel 1 of the layout, shared by all workers like channel 0. An answer's header has the step that it
leads to: times that the weights have changed on that server. A worker that has taken the slot of one that died between
two servers may meet an answer that is in its weights already; it leaves that one out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ...compression import BucketCodec, Compression, codec_of, compile_loops
from ...sparse import bounds_of
from ..base import Model, SlotLostError, Source
from ..protocol import wire
from ..protocol.layout import Bucket, Layout
from .packing import Copies, Packed, Room, Total
from .shards import Shard

CHANNEL = 1


def codecs_of(
    compression: Compression, layout: Layout, shard: int, tensors: Sequence[int]
) -> dict[int, tuple[Bucket, BucketCodec]]:
    """The buckets of weights of a server, and the codec of each; by index."""
    compile_loops(compression)
    part = Shard(layout, shard, bounds_of(tensors))
    return {
        bucket.index: (bucket, codec_of(compression, part.segments(place))) for place, bucket in enumerate(part.buckets)
    }


class BucketPacker:
    """A worker's half; see `packing.Packer`. Its memory: one vector as long as the weights, of what is kept."""

    def __init__(
        self,
        compression: Compression,
        layout: Layout,
        tensors: Sequence[int],
        common: Mapping[int, np.ndarray],
        steps: Sequence[int],
    ) -> None:
        self._layout, self._common = layout, common
        self._shards = [codecs_of(compression, layout, shard, tensors) for shard in range(layout.servers)]
        self._steps = {index: steps[shard] for shard, codecs in enumerate(self._shards) for index in codecs}
        self.rest = np.zeros(layout.weights, np.float32)
        self._scratch = np.empty(min(layout.bucket_elements, layout.weights), np.float32)

    def write(self, values: Source, room: Room) -> Iterator[Packed]:
        """See `packing.Packer.write`."""
        buckets = [each for codecs in self._shards for each in codecs.values()]
        for bucket, codec in sorted(buckets, key=lambda each: each[0].index):
            part = self._scratch[: bucket.stop - bucket.start]
            values.read(bucket.start, bucket.stop, part)
            key = self._layout.key(bucket, CHANNEL)
            codec.pack_with(self.rest[bucket.start : bucket.stop], part, room(key, codec.elements))
            yield Packed(bucket.shard, key, bucket.index)

    def wanted(self, shard: int, length: int) -> list[tuple[int, int]]:
        """See `packing.Packer.wanted`; the length is always the same."""
        return [(self._layout.key(bucket, CHANNEL), codec.elements) for bucket, codec in self._shards[shard].values()]

    def read(self, shard: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
        """See `packing.Packer.read`."""
        for (bucket, codec), array in zip(self._shards[shard].values(), arrays, strict=True):
            step, at = int(wire.header_of(array)["sequence"]), self._steps[bucket.index]
            if step not in (at, at + 1):
                raise SlotLostError(
                    f"the servers are at step {step}, where this worker expects {at + 1}: start it again"
                )
            common = self._common[bucket.index]
            if step > at:
                codec.add(array[wire.HEADER_ELEMENTS :], common)
                self._steps[bucket.index] = step
            model.write(False, bucket.start, common)


class BucketUnpacker:
    """The half of one server; see `packing.Unpacker`."""

    def __init__(self, compression: Compression, layout: Layout, shard: int, tensors: Sequence[int]) -> None:
        self._codecs = codecs_of(compression, layout, shard, tensors)
        self._keys = {layout.key(bucket, CHANNEL): index for index, (bucket, _) in self._codecs.items()}
        self._key_of = {index: key for key, index in self._keys.items()}
        self._scratch = np.empty(min(layout.bucket_elements, layout.weights), np.float32)
        self._aside = ThreadPoolExecutor(1, "pack")

    def holds(self, key: int) -> bool:
        """See `packing.Unpacker.holds`."""
        return key in self._keys

    def add(self, payload: Mapping[int, np.ndarray], total: Total, factor: float) -> None:
        """See `packing.Unpacker.add`."""
        for index, packed in payload.items():
            bucket, codec = self._codecs[index]
            target, fresh = total(index, bucket.stop - bucket.start)
            values = target if fresh else self._scratch[: target.size]
            if factor == 1 and not fresh:
                codec.add(packed, target)
                continue
            codec.put(packed, values)
            if factor != 1:
                values *= np.float32(factor)
            if not fresh:
                target += values

    def answer(
        self, copies: Iterable[tuple[int, Copies]], payloads: int, room: Room
    ) -> tuple[list[tuple[int, int]], int]:
        """See `packing.Unpacker.answer`."""
        answers, steps = [], []
        for index, (exact, common) in copies:
            codec, key = self._codecs[index][1], self._key_of[index]
            # Meanwhile the caller works on the next bucket.
            steps.append(self._aside.submit(codec.step, exact, common, room(key, codec.elements)))
            answers.append((key, index))
        for step in steps:
            step.result()
        return answers, 0
