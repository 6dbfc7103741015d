"""A parameter server whose messages are sparse both ways: model difference tracking behind the wire protocol.

The dense model is published as ever (channel 0), for workers that come, and each worker's own channel holds exactly the
weights that it has: it fills them when it joins, and every answer is added to them here as it is there. In between,
messages come in pieces and go out in pieces, through keys of each worker's own.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from ..rules import replace_by_mean
from ..sparse import Sparse, SparseError, bounds_of
from ..sparse.codec import Codec
from ..sparse.selection import Selection
from ..sparse.tracker import DifferenceTracker
from . import wire
from .layout import Bucket, Layout
from .ledger import Ledger
from .parameter_server import ParameterServer
from .shards import PieceKeys, Shard, united

log = logging.getLogger(__name__)


class SparseServer(ParameterServer):
    """One server's share, with sparse messages.

    Args:
        layout: how the model is cut.
        ledger: the books; asynchronous.
        shard: number of this server.
        clock: seconds, monotonic.
        tensors: sizes of the tensors that the weights consist of.
        secondary_ratio: share of each segment's values that an answer may hold; 0: all that has changed.
        dense_below: segments with fewer values are answered whole.
        values: "float32" or "float16", of the values on the wire.
    """

    def __init__(
        self,
        layout: Layout,
        ledger: Ledger,
        shard: int,
        clock: Callable[[], float],
        tensors: list[int],
        secondary_ratio: float,
        dense_below: int,
        values: str,
    ) -> None:
        super().__init__(layout, ledger, replace_by_mean, True, clock)
        self._shard = Shard(layout, shard, bounds_of(tensors))
        self._number = shard
        self._codec = Codec(self._shard.bounds, values)
        self._keys = PieceKeys(layout, ledger.slots)
        self._places = {bucket.index: place for place, bucket in enumerate(self._shard.buckets)}
        self._secondary = [
            Selection(self._shard.segments(place), secondary_ratio, dense_below) if secondary_ratio else None
            for place in range(len(self._shard.buckets))
        ]
        self._trackers: dict[int, DifferenceTracker] = {}
        self._rooms: dict[int, np.ndarray] = {}  # key → where its value is stored
        self._answers: dict[int, dict[int, np.ndarray]] = {}  # rank → number of a piece → values

    @property
    def bytes_kept(self) -> int:
        """Bytes of the model, of each worker's weights, of what is pending for them, and of messages' pieces."""
        pieces = sum(room.nbytes for room in self._rooms.values())
        return sum(tracker.memory for tracker in self._trackers.values()) + pieces

    def push(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """See `ParameterServer.push`; keys of pieces are dealt with here."""
        found = self._keys.locate(key) if key >= 2 * self.layout.servers else None
        if found is None:
            super().push(key, received, stored)
            return
        rank, number = found
        header = wire.header_of(received)
        nonce = int(header["nonce"])
        if self.ledger.failure or int(header["rank"]) != rank or not self._is_current(rank, nonce):
            return
        self.heard[rank] = self._clock()
        self._rooms[key] = stored
        if header["kind"] != wire.PAYLOAD:
            self._put_answer(rank, number, key)  # the worker has made room for it
            return
        self._inbox.put(rank, nonce, int(header["sequence"]), int(header["bucket"]), received[wire.HEADER_ELEMENTS :])
        if rank in self._arriving:
            self._on_commit(self._arriving[rank])

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _keep(self, channel: int, bucket: Bucket, stored: np.ndarray) -> None:
        super()._keep(channel, bucket, stored)
        if bucket.statistics:
            return
        if channel == 0:
            place = self._places[bucket.index]
            if place not in self._trackers:
                weights = stored[wire.HEADER_ELEMENTS :]
                self._trackers[place] = DifferenceTracker(weights, self._secondary[place], self._codec.kind)
        else:
            self._trackers[self._places[bucket.index]].welcome(channel - 1, stored[wire.HEADER_ELEMENTS :])
            # What its predecessor was owed is of no use to it.
            self.ledger.answer[channel - 1] = 0
            self._answers.pop(channel - 1, None)
            if bucket is self._shard.buckets[-1]:
                log.info("worker %d has the model; %.0f MB are kept", channel - 1, self.bytes_kept / 1e6)

    def _apply(self, ranks: list[int]) -> None:
        """Subtract each worker's step, and put together what it is owed."""
        for rank in ranks:
            payload = self._inbox.take(rank)
            try:
                step = self._codec.decode(united([payload[place] for place in sorted(payload)]))
            except SparseError as error:
                self.ledger.abort(f"worker {rank}: {error}; nothing was done with it")
                return
            finally:
                self.memory.release(payload.values())
            self._update_all(rank, step)
            self.ledger.applied([rank], self._clock())

    def _on_commit(self, message: Any) -> None:
        """A worker whose step comes after the end of the run gets what it is owed all the same."""
        rank, sequence = int(message["rank"]), int(message["sequence"])
        before = int(self.ledger.acknowledged[rank])
        super()._on_commit(message)
        if before < sequence == self.ledger.acknowledged[rank] and not self.ledger.used[rank]:
            self._answer(rank)
            self._publish_status()

    def _update_all(self, rank: int, step: Sparse) -> None:
        for place, part in self._shard.split(step):
            self._trackers[place].apply(part)
        self._answer(rank)

    def _answer(self, rank: int) -> None:
        """Put together what a worker is owed."""
        owed = [self._trackers[place].difference(rank) for place in range(len(self._shard.buckets))]
        message = self._codec.encode(self._shard.unite(owed))
        self.ledger.answer[rank] = message.size
        self._answers[rank] = {}
        for number, values in self._keys.cut(message):
            self._answers[rank][number] = values
            self._put_answer(rank, number, self._keys.key(rank, number, self._number))

    def _put_answer(self, rank: int, number: int, key: int) -> None:
        """Put a piece where the worker pulls it, once both are there."""
        values, room = self._answers.get(rank, {}).get(number), self._rooms.get(key)
        if values is None or room is None:
            return
        np.copyto(room[wire.HEADER_ELEMENTS :], values)
        del self._answers[rank][number]
