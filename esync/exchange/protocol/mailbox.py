"""Mailboxes of the servers, through which checkpoints read and restore the state of servers.

This is the state of the rule and, with lossy codecs, the exact weights that it works on.
"""

from collections.abc import Callable, Mapping
from itertools import islice

import numpy as np

from . import wire
from .layout import WEIGHTS, Layout
from .store import Store


class Mailboxes:
    """The mailboxes of all servers, each for one bucket at a time, set up on first use.

    Args:
        store: connection to the servers.
        layout: how the model is cut into buckets.
        vectors: name of each vector whose rule has a state → number of the state's vectors.
        send_to: sends a message, given the server's number, the kind and the fields.
    """

    def __init__(self, store: Store, layout: Layout, vectors: Mapping[str, int], send_to: Callable[..., None]) -> None:
        self._store, self._layout, self._vectors, self._send_to = store, layout, vectors, send_to
        self._opened = False

    def fetch(self) -> list[np.ndarray | None]:
        """Return the vectors of the rules' state; None for one that does not exist yet."""
        return [self._fetch_vector(index, vector) for vector, count in self._vectors.items() for index in range(count)]

    def fetch_weights(self) -> np.ndarray | None:
        """Return the weights that the rule works on."""
        return self._fetch_vector(wire.SERVER_WEIGHTS)

    def put(self, state: list[np.ndarray | None], weights: np.ndarray | None) -> None:
        """Restore the rules' state of a checkpoint on the servers, and their weights, if any."""
        remaining = iter(state)
        for vector, count in self._vectors.items():
            for index, values in enumerate(islice(remaining, count)):
                self._put(vector, index, count, values)
        self._put(WEIGHTS, wire.SERVER_WEIGHTS, 0, weights)

    def assign(self, weights: np.ndarray, sequence: int, vector: str = WEIGHTS) -> None:
        """Replace the servers' weights of a vector before they use this worker's payload number `sequence`."""
        self._put(vector, wire.SERVER_WEIGHTS, sequence, weights)

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

    def _fetch_vector(self, index: int, name: str = WEIGHTS) -> np.ndarray | None:
        store = self._store
        vector = np.empty(self._layout.sizes[name], np.float32)
        with store.waiting("the rule's state from"):
            self._open()
            for bucket in self._layout.of(name):
                self._send_to(bucket.shard, wire.FETCH, buckets=bucket.index, index=index)
                store.flush()
                (values,) = store.fetch(bucket.shard, [self._spec(bucket.shard)])
                if wire.header_of(values)["kind"] == wire.NOTHING:
                    return None
                vector[bucket.start : bucket.stop] = values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        return vector

    def _put(self, name: str, index: int, sequence: int, values: np.ndarray | None) -> None:
        if values is None:
            return
        for bucket in self._layout.of(name):
            with self._store.waiting("the rule's state to reach"):
                self._open()
                part = self._buffer(bucket.shard, wire.STATE, sequence, bucket.index, index)
                part[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = values[bucket.start : bucket.stop]
                self._store.send(bucket.shard, [self._spec(bucket.shard)])
                self._store.flush()
