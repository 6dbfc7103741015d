"""A worker's buckets on MXNet's key store: one buffer of the model's size, to send from and to receive into."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ...engine import mx
from ...memory import host_view
from ..base import Model, Source
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Bucket, Layout
from .line import Line


class Buckets:
    """The buffers of all buckets, and how they are pushed and pulled.

    Args:
        line: to the servers.
        layout: how the model is cut.
    """

    def __init__(self, line: Line, layout: Layout) -> None:
        self._line, self._layout = line, layout
        sizes = [wire.HEADER_ELEMENTS + bucket.stop - bucket.start for bucket in layout.buckets]
        self._arrays = [mx.nd.zeros((size,), ctx=mx.cpu()) for size in sizes]
        mx.nd.waitall()
        self._buffers = [host_view(array) for array in self._arrays]  # the same memory

    def fill(self, bucket: Bucket, kind: int, source: Source) -> None:
        """Read a bucket's values from a source and stamp them."""
        self._stamp(bucket, kind)
        source.read(bucket.start, bucket.stop, self.values(bucket))

    def push(self, bucket: Bucket, channel: int) -> None:
        """Send a bucket; does not wait."""
        self._line.push(self._layout.key(bucket, channel), self._arrays[bucket.index])

    def push_all(self, channel: int) -> None:
        """Send all buckets; does not wait."""
        for bucket in self._layout.buckets:
            self.push(bucket, channel)

    def init(self, channel: int) -> None:
        """Set the keys of a channel up with what the buffers hold; MXNet takes the values of rank 0."""
        self._init(self._layout.buckets, channel)

    def open_channel(self, channel: int) -> None:
        """Set keys of this worker's own up, beginning with what was pulled last: that is what it was sent."""
        trained = [bucket for bucket in self._layout.buckets if bucket.vector == WEIGHTS]
        for bucket in trained:
            self._stamp(bucket, wire.NOTHING)
        self._init(trained, channel)
        for _ in range(1 if self._line.store.rank == 0 else 2):  # MXNet's init only sends the values of rank 0
            for bucket in trained:
                self.push(bucket, channel)
        mx.nd.waitall()

    def pull(self, model: Model, vectors: Collection[str], channel: Callable[[str], int]) -> None:
        """Pull these vectors, each in its channel; hand them on bucket by bucket as they arrive."""
        buckets = [bucket for bucket in self._layout.buckets if bucket.vector in vectors]
        for bucket in buckets:
            self._line.pull(self._layout.key(bucket, channel(bucket.vector)), self._arrays[bucket.index])
        for bucket in buckets:
            self._arrays[bucket.index].wait_to_read()
            model.write(bucket.vector, bucket.start, self.values(bucket))

    def _init(self, buckets: Sequence[Bucket], channel: int) -> None:
        keys = [self._layout.key(bucket, channel) for bucket in buckets]
        self._line.store.init(keys, [self._arrays[bucket.index] for bucket in buckets])

    def _stamp(self, bucket: Bucket, kind: int) -> None:
        line = self._line
        wire.stamp(self._buffers[bucket.index], kind, line.rank, line.nonce, line.sequence, bucket.index)

    def values(self, bucket: Bucket) -> np.ndarray:
        """The values of a bucket that were filled in or pulled last; the buffer's own memory."""
        return self._buffers[bucket.index][wire.HEADER_ELEMENTS :]
