"""The codec of uncompressed vectors, in float32, with the keys of the layout's buckets."""

from collections.abc import Iterable, Iterator

import numpy as np
from typing_extensions import override

from ..base import ModelSink, Source
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Bucket, Layout
from .base import Codec, Decoder, Downlink, Encoder, GetBuffer, PackedArray, Uplink, WorkerCodec


class UncompressedCodec(Codec):
    """Sends uncompressed weights.

    Args:
        layout: how the model is cut into buckets.
        private: whether every worker has a channel of its own.
    """

    def __init__(self, layout: Layout, private: bool) -> None:
        self._layout, self._private = layout, private

    @override
    def encoder(self, rank: int) -> "UncompressedEncoder":
        return UncompressedEncoder(self._layout, self._channel(rank))

    @override
    def decoder(self, rank: int) -> "UncompressedDecoder":
        return UncompressedDecoder(self._layout, self._channel(rank))

    @override
    def uplink(self, server: int) -> Uplink:
        return Uplink()

    @override
    def downlink(self, server: int) -> Downlink:
        return Downlink(self._private)

    def _channel(self, rank: int) -> int:
        return rank + 1 if self._private else 0


class UncompressedEncoder(Encoder):
    """Copies each bucket of a payload.

    Args:
        layout: how the model is cut into buckets.
        channel: of the keys; see `layout`.
        vector: name of the vector.
    """

    def __init__(self, layout: Layout, channel: int, vector: str = WEIGHTS) -> None:
        self._layout, self._channel, self._vector = layout, channel, vector

    @override
    def write(self, values: Source, buffer: GetBuffer, compression: int = 0) -> Iterator[PackedArray]:
        for bucket in self._layout.of(self._vector):
            key = self._layout.key(bucket, self._channel)
            values.read(bucket.start, bucket.stop, buffer(key, bucket.stop - bucket.start))
            yield PackedArray(bucket.shard, key, bucket.index)

    @override
    def sizes(self, server: int, compression: int = 0) -> list[int]:
        return sizes_of(self._layout.of(self._vector, server))


class UncompressedDecoder(Decoder):
    """Writes each bucket to the model.

    Args:
        layout: how the model is cut into buckets.
        channel: of the keys.
        vector: name of the vector.

    Attributes:
        steps: index of a bucket → number of changes of the weights when it was last read from the
            shared channel.
    """

    def __init__(self, layout: Layout, channel: int, vector: str = WEIGHTS) -> None:
        self._layout, self._channel, self._vector = layout, channel, vector
        self.steps: dict[int, int] = {}

    def answer_arrays(self, server: int, form: int) -> list[tuple[int, int]]:
        """See `Decoder.answer_arrays`; the sizes do not vary."""
        buckets = self._layout.of(self._vector, server)
        return [(self._layout.key(bucket, self._channel), bucket.stop - bucket.start) for bucket in buckets]

    @override
    def read(self, server: int, arrays: Iterable[np.ndarray], form: int, model: ModelSink) -> None:
        for bucket, array in zip(self._layout.of(self._vector, server), arrays, strict=True):
            self.steps[bucket.index] = int(wire.header_of(array)["sequence"])
            model.write(self._vector, bucket.start, array[wire.HEADER_ELEMENTS :])

    @override
    def answer_sizes(self, server: int, form: int) -> list[int]:
        return sizes_of(self._layout.of(self._vector, server))


def uncompressed_codec(layout: Layout, channel: int, vector: str) -> WorkerCodec:
    """Make the codec of an uncompressed vector in a channel."""
    return WorkerCodec(UncompressedEncoder(layout, channel, vector), UncompressedDecoder(layout, channel, vector))


def sizes_of(buckets: Iterable[Bucket]) -> list[int]:
    """Return the number of values of each of these buckets."""
    return [bucket.stop - bucket.start for bucket in buckets]
