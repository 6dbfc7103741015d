"""The worker's side of sparse exchanges on MXNet's key store: messages in pieces, both ways.

A sparse exchange goes like any other: the payload's pieces, the commit, the status until the servers have used it. The
status also says how long the answer is, and so which pieces it has.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ...engine import mx
from ...memory import host_view
from ..base import Model, Payload, Result, Source
from ..codecs.choice import codec_of
from ..protocol import wire
from ..protocol.layout import WEIGHTS
from .kvstore_worker import KVStoreExchange
from .line import Line
from .pending import PendingExchange


class Pieces:
    """The arrays that pieces of messages are sent from and received into, made as they are needed.

    Args:
        line: to the servers.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}
        self._shown: set[int] = set()

    def room(self, key: int, size: int) -> np.ndarray:
        """Where the values of a piece are to be put before it is sent; nothing of that key is under way then."""
        return self._open(key, size)[1][wire.HEADER_ELEMENTS :]

    def send(self, key: int, place: int) -> None:
        """Send what is in the room of the piece at a place of a message; does not wait."""
        array, view = self._arrays[key]
        self._stamp(view, wire.PAYLOAD, place)
        self._line.push(key, array)
        self._shown.add(key)

    def fetch(self, wanted: list[tuple[int, int]]) -> Iterator[np.ndarray]:
        """The arrays of pieces, headers included, given their keys and sizes; one by one as they come."""
        arrays = []
        for key, size in wanted:
            array, view = self._open(key, size)
            if key not in self._shown:
                self._stamp(view, wire.NOTHING, 0)
                self._line.push(key, array)  # the server puts the piece there
                mx.nd.waitall()
                self._shown.add(key)
            self._line.pull(key, array)
            arrays.append((array, view))
        for array, view in arrays:
            array.wait_to_read()
            yield view

    def _open(self, key: int, size: int) -> tuple[Any, np.ndarray]:
        """The array of a key. The first value that a server gets for a key is kept without being looked at."""
        if key not in self._arrays:
            array = mx.nd.zeros((wire.HEADER_ELEMENTS + size,), ctx=mx.cpu())
            mx.nd.waitall()
            self._arrays[key] = array, host_view(array)
            self._stamp(self._arrays[key][1], wire.NOTHING, 0)
            self._line.push(key, array)
            mx.nd.waitall()
        return self._arrays[key]

    def _stamp(self, view: np.ndarray, kind: int, place: int) -> None:
        wire.stamp(view, kind, self._line.rank, self._line.nonce, self._line.sequence, place)


class SparseExchange(KVStoreExchange):
    """Sends sparse steps, and lets the sparse answers go into the model."""

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`; afterwards each server knows what this worker's weights are."""
        result = super().begin(vectors, model)
        self._codec = codec_of(self._specification, self._layout, self.workers, self.rank)
        self._pieces = Pieces(self.line)
        return result

    def start(self, payload: Payload, model: Model) -> PendingExchange:
        """Push the pieces of the step, the other vectors where there are any, and the commit; see `Exchange.start`."""
        begun = time.perf_counter()
        self.line.hold()
        self.line.sequence += 1
        assert payload.step is not None, "a sparse exchange takes a sparse step"
        with self.line.patience("a sparse message to"):
            buckets = [0] * self.line.servers
            for shard in self._push(payload):
                buckets[shard] += 1
            for shard, key, place in self._codec.write(payload.step, self._pieces.room):
                self._pieces.send(key, place)
                buckets[shard] += 1
            for shard in range(self.line.servers):
                self.line.say_to(shard, wire.COMMIT, **payload.terms, buckets=buckets[shard])
        return PendingExchange(self, model, payload.returned, begun)

    def pull(self, model: Model, vectors: Collection[str]) -> None:
        """Pull what the servers owe this worker, and the other vectors as they are."""
        with self.line.patience("a sparse answer from"):
            self._buckets.pull(model, set(vectors) - {WEIGHTS}, self._channel)
            for shard in range(self.line.servers):
                length = int(self.line.status(shard)["answer"][self.rank])
                arrays = self._pieces.fetch(self._codec.wanted(shard, length))
                self._codec.read(shard, arrays, length, model)
