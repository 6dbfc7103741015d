"""Mailboxes of the servers, through which checkpoints read and restore the state of servers.

This is the state of the rule and, with lossy codecs, the exact weights that it works on.
"""

from collections.abc import Callable

import numpy as np

from . import wire
from .layout import WEIGHTS, Bucket, Layout
from .store import Store


class Mailboxes:
    """The mailboxes of all servers, each for one bucket at a time, set up on first use.

    Args:
        store: connection to the servers.
        layout: how the model is cut into buckets.
        vectors: number of vectors of the rule's state.
        send_to: sends a message, given the server's number, the kind and the fields.
    """

    def __init__(self, store: Store, layout: Layout, vectors: int, send_to: Callable[..., None]) -> None:
        self._store, self._layout, self._vectors, self._send_to = store, layout, vectors, send_to
        self._trained = self._layout.of(WEIGHTS)
        self._opened = False

    def fetch(self) -> list[np.ndarray | None]:
        """Return the vectors of the rule's state; None for one that does not exist yet."""
        return [self._fetch_vector(index) for index in range(self._vectors)]

    def fetch_weights(self) -> np.ndarray | None:
        """Return the weights that the rule works on."""
        return self._fetch_vector(wire.SERVER_WEIGHTS)

    def put(self, state: list[np.ndarray | None], weights: np.ndarray | None) -> None:
        """Restore the rule's state of a checkpoint on the servers, and their weights, if any."""
        for index, vector in [*enumerate(state), (wire.SERVER_WEIGHTS, weights)]:
            for bucket in self._trained:
                if vector is not None:
                    self._put_bucket(bucket, index, len(state), vector)

    def assign(self, weights: np.ndarray, sequence: int) -> None:
        """Replace the servers' weights before they use this worker's payload number `sequence`."""
        for bucket in self._trained:
            self._put_bucket(bucket, wire.SERVER_WEIGHTS, sequence, weights)

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            for shard in range(self._store.servers):
                self._buffer(shard, wire.NOTHING)
            self._store.open([[self._spec(shard)] for shard in range(self._store.servers)])

    def _spec(self, shard: int) -> tuple[int, int]:
        return self._layout.mailbox_key(shard), wire.HEADER_ELEMENTS + self._layout.mailbox_elements(shard)

    def _buffer(self, shard: int, kind: int, sequence: int = 0, bucket: int = 0, index: int = 0) -> np.ndarray:
        array = self._store.buffer(*self._spec(shard))
        array[:] = 0
        wire.stamp(array, kind, self._store.rank, self._store.nonce, sequence, bucket, index)
        return array

    def _fetch_vector(self, index: int) -> np.ndarray | None:
        store = self._store
        vector = np.empty(self._layout.sizes[WEIGHTS], np.float32)
        with store.waiting("the rule's state from"):
            self._open()
            for bucket in self._trained:
                self._send_to(bucket.shard, wire.FETCH, buckets=bucket.index, index=index)
                store.flush()
                (values,) = store.fetch(bucket.shard, [self._spec(bucket.shard)])
                if wire.header_of(values)["kind"] == wire.NOTHING:
                    return None
                vector[bucket.start : bucket.stop] = values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        return vector

    def _put_bucket(self, bucket: Bucket, index: int, sequence: int, vector: np.ndarray) -> None:
        store = self._store
        with store.waiting("the rule's state to reach"):
            self._open()
            values = self._buffer(bucket.shard, wire.STATE, sequence, bucket.index, index)
            values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = vector[bucket.start : bucket.stop]
            store.send(bucket.shard, [self._spec(bucket.shard)])
            store.flush()
