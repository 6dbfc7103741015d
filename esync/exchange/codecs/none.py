"""Weights that travel as they are, in float32: the keys of the layout's buckets carry them both ways."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..base import ModelSink, Source
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Bucket, Layout
from .base import Decoder, Downlink, Encoder, GetBuffer, Packed, Packing, Total, Updated, Uplink, WorkerCodec, a_vector
from .quantization import NONE
from .sparse import Sparse


class PlainPacking(Packing):
    """Sends weights as they are.

    Args:
        layout: how the model is cut.
        private: every worker has a channel of its own.
    """

    name = NONE

    def __init__(self, layout: Layout, private: bool) -> None:
        self._layout, self._private = layout, private

    def encoder(self, rank: int) -> "PlainEncoder":
        """See `Packing.encoder`."""
        return PlainEncoder(self._layout, self._channel(rank))

    def decoder(self, rank: int) -> "PlainDecoder":
        """See `Packing.decoder`."""
        return PlainDecoder(self._layout, self._channel(rank))

    def uplink(self, server: int) -> "PlainUplink":
        """See `Packing.uplink`."""
        return PlainUplink()

    def downlink(self, server: int) -> "PlainDownlink":
        """See `Packing.downlink`."""
        return PlainDownlink(self._private)

    def _channel(self, rank: int) -> int:
        return rank + 1 if self._private else 0


class PlainEncoder(Encoder):
    """Copies each bucket of a payload.

    Args:
        layout: how the model is cut.
        channel: of the keys; see `layout`.
        vector: name of the vector.
    """

    def __init__(self, layout: Layout, channel: int, vector: str = WEIGHTS) -> None:
        self._layout, self._channel, self._vector = layout, channel, vector

    def write(self, values: Source | Sparse, buffer: GetBuffer) -> Iterator[Packed]:
        """See `Encoder.write`."""
        source = a_vector(values, NONE)
        for bucket in self._layout.of(self._vector):
            key = self._layout.key(bucket, self._channel)
            source.read(bucket.start, bucket.stop, buffer(key, bucket.stop - bucket.start))
            yield Packed(bucket.shard, key, bucket.index)

    def sizes(self, server: int) -> list[int]:
        """See `Encoder.sizes`."""
        return sizes_of(self._layout.of(self._vector, server))


class PlainDecoder(Decoder):
    """Writes each bucket to the model.

    Args:
        layout: how the model is cut.
        channel: of the keys.
        vector: name of the vector.

    Attributes:
        steps: index of a bucket → how often the weights had changed when it was read last, in the
            shared channel.
    """

    def __init__(self, layout: Layout, channel: int, vector: str = WEIGHTS) -> None:
        self._layout, self._channel, self._vector = layout, channel, vector
        self.steps: dict[int, int] = {}

    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """See `Decoder.wanted`; the length is always the same."""
        buckets = self._layout.of(self._vector, server)
        return [(self._layout.key(bucket, self._channel), bucket.stop - bucket.start) for bucket in buckets]

    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: ModelSink) -> None:
        """See `Decoder.read`."""
        for bucket, array in zip(self._layout.of(self._vector, server), arrays, strict=True):
            self.steps[bucket.index] = int(wire.header_of(array)["sequence"])
            model.write(self._vector, bucket.start, array[wire.HEADER_ELEMENTS :])

    def answer_sizes(self, server: int) -> list[int]:
        """See `Decoder.answer_sizes`."""
        return sizes_of(self._layout.of(self._vector, server))


def plain_codec(layout: Layout, channel: int, vector: str) -> WorkerCodec:
    """Make the codec of a vector that travels as it is, through the keys of a channel."""
    return WorkerCodec(PlainEncoder(layout, channel, vector), PlainDecoder(layout, channel, vector))


class PlainUplink(Uplink):
    """Has nothing to unpack."""

    name = NONE

    def holds(self, key: int) -> bool:
        """No key has packed arrays."""
        return False

    def add(self, packed: Mapping[int, np.ndarray], total: Total, factor: float) -> None:
        """Do nothing: there is nothing to be added."""


class PlainDownlink(Downlink):
    """Has nothing to pack.

    Args:
        private: every worker is sent the weights in a channel of its own.
    """

    name = NONE

    def __init__(self, private: bool) -> None:
        self.private = private

    def publish(self, updated: Iterable[Updated], ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """See `Downlink.publish`."""
        for _ in updated:
            pass


def sizes_of(buckets: Iterable[Bucket]) -> list[int]:
    """Return how many values each of these buckets has."""
    return [bucket.stop - bucket.start for bucket in buckets]
