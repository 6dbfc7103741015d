"""Mailboxes of the servers, by which checkpoints get and set what only servers have.

That is the state of the rule, and with lossy codecs the weights that it works on.
"""

from collections.abc import Callable

import numpy as np

from . import wire
from .layout import WEIGHTS, Bucket, Layout
from .store import Store


class Mailboxes:
    """One bucket's buffer on every server, set up when it is first used.

    Args:
        store: to the servers.
        layout: how the model is cut into buckets.
        vectors: number of vectors that the rule remembers.
        say_to: sends a message to a server, given its number, the kind and the fields.
    """

    def __init__(self, store: Store, layout: Layout, vectors: int, say_to: Callable[..., None]) -> None:
        self._store, self._layout, self._vectors, self._say_to = store, layout, vectors, say_to
        self._trained = self._layout.of(WEIGHTS)
        self._opened = False

    def fetch(self) -> list[np.ndarray | None]:
        """Return the vectors that the rule remembers; None for one that it has not begun to.

        Buckets come one after the other.
        """
        return [self._vector(place) for place in range(self._vectors)]

    def fetch_weights(self) -> np.ndarray | None:
        """Return the weights that the rule works on."""
        return self._vector(wire.SERVER_WEIGHTS)

    def put(self, state: list[np.ndarray | None], weights: np.ndarray | None) -> None:
        """Give the servers the vectors of a checkpoint, and their rule's weights, if any."""
        for place, vector in [*enumerate(state), (wire.SERVER_WEIGHTS, weights)]:
            for bucket in self._trained:
                if vector is not None:
                    self._put(bucket, place, len(state), vector)

    def assign(self, weights: np.ndarray, sequence: int) -> None:
        """Give the servers weights on which they use the payload of that number."""
        for bucket in self._trained:
            self._put(bucket, wire.SERVER_WEIGHTS, sequence, weights)

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            for shard in range(self._store.servers):
                self._buffer(shard, wire.NOTHING)
            self._store.open([[self._place(shard)] for shard in range(self._store.servers)])

    def _place(self, shard: int) -> tuple[int, int]:
        return self._layout.mailbox_key(shard), wire.HEADER_ELEMENTS + self._layout.mailbox_elements(shard)

    def _buffer(self, shard: int, kind: int, sequence: int = 0, index: int = 0) -> np.ndarray:
        array = self._store.buffer(*self._place(shard))
        array[:] = 0
        wire.stamp(array, kind, self._store.rank, self._store.nonce, sequence, index)
        return array

    def _vector(self, place: int) -> np.ndarray | None:
        store = self._store
        vector = np.empty(self._layout.sizes[WEIGHTS], np.float32)
        with store.waiting("the rule's state from"):
            self._open()
            for bucket in self._trained:
                self._say_to(bucket.shard, wire.FETCH, buckets=bucket.index, place=place)
                store.flush()
                (values,) = store.fetch(bucket.shard, [self._place(bucket.shard)])
                if wire.header_of(values)["kind"] == wire.NOTHING:
                    return None
                vector[bucket.start : bucket.stop] = values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        return vector

    def _put(self, bucket: Bucket, place: int, count: int, vector: np.ndarray) -> None:
        store = self._store
        with store.waiting("the rule's state to reach"):
            self._open()
            values = self._buffer(bucket.shard, wire.STATE, count, bucket.index)
            wire.header_of(values)["place"] = place
            values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = vector[bucket.start : bucket.stop]
            store.send(bucket.shard, [self._place(bucket.shard)])
            store.flush()
