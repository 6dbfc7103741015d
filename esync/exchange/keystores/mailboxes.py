"""The worker's end of the servers' mailboxes: what the rule remembers, on its way to a checkpoint or back from one."""

from typing import Any

import numpy as np

from ...engine import mx
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Bucket, Layout
from .line import Line


class Mailboxes:
    """One bucket's room on every server whose rule remembers anything.

    Args:
        line: to the servers.
        layout: how the model is cut.
        vectors: how many the rule remembers; 0: there are no mailboxes.
    """

    def __init__(self, line: Line, layout: Layout, vectors: int) -> None:
        self._line, self._layout, self._vectors = line, layout, vectors
        self._trained = [bucket for bucket in layout.buckets if bucket.vector == WEIGHTS]
        self._arrays: list[Any] = []

    def open(self) -> None:
        """Set them up."""
        if not self._vectors:
            return
        shards = range(self._line.servers)
        sizes = [wire.HEADER_ELEMENTS + self._layout.mailbox_elements(shard) for shard in shards]
        self._arrays = [mx.nd.zeros((size,), ctx=mx.cpu()) for size in sizes]
        keys = [self._layout.mailbox_key(shard) for shard in shards]
        self._line.store.init(keys, self._arrays)
        if self._line.rank == 0:
            self._line.store.push(keys, self._arrays)  # shows the servers where they are

    def fetch(self) -> list[np.ndarray | None]:
        """The vectors that the rule remembers, one bucket after the other; None for one that it has not begun with."""
        return [self._vector(place) for place in range(self._vectors)]

    def put(self, state: list[np.ndarray | None]) -> None:
        """Give the servers the vectors of a checkpoint."""
        for place, vector in enumerate(state):
            for bucket in self._trained:
                if vector is not None:
                    self._put(bucket, place, len(state), vector)

    def _vector(self, place: int) -> np.ndarray | None:
        line = self._line
        vector = np.empty(self._layout.sizes[WEIGHTS], np.float32)
        for bucket in self._trained:
            mailbox = self._arrays[bucket.shard]
            with line.patience("what the rule remembers from"):
                line.say_to(bucket.shard, wire.FETCH, buckets=bucket.index, place=place)
                mx.nd.waitall()
                line.store.pull(self._layout.mailbox_key(bucket.shard), mailbox)
                values = mailbox.asnumpy()
            if wire.header_of(values)["kind"] == wire.NOTHING:
                return None
            vector[bucket.start : bucket.stop] = values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        return vector

    def _put(self, bucket: Bucket, place: int, count: int, vector: np.ndarray) -> None:
        line = self._line
        values = np.zeros(self._arrays[bucket.shard].size, np.float32)
        wire.stamp(values, wire.STATE, line.rank, line.nonce, count, bucket.index)
        wire.header_of(values)["place"] = place
        values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = vector[bucket.start : bucket.stop]
        with line.patience("what the rule remembers to"):
            line.store.push(self._layout.mailbox_key(bucket.shard), mx.nd.array(values, dtype=np.float32))
            mx.nd.waitall()
