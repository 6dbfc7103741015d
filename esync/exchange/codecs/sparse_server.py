"""A parameter server whose messages are sparse both ways: model difference tracking behind the wire protocol.

The dense model is published as ever (channel 0), for workers that come. Where answers hold differences, each worker's
own channel holds exactly the weights that it has: it fills them when it joins, and every answer is added to them here
as it is there. In between, messages come in pieces and go out in pieces, through keys of each worker's own. Other
vectors come in buckets as ever, the statistics now and then.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...rules import Rule
from ...sparse import Differences, Sparse, SparseError, bounds_of
from ...sparse.changes import ChangeTracker
from ...sparse.codec import NEW_VALUES, Codec
from ...sparse.differences import DifferenceTracker
from ...sparse.selection import Selection
from ...sparse.tracker import Tracker
from ..protocol import wire
from ..protocol.layout import WEIGHTS, Bucket, Layout
from ..protocol.ledger import Ledger
from ..protocol.parameter_server import ParameterServer
from ..protocol.resumption import Offers
from .shards import PieceKeys, Shard, united

log = logging.getLogger(__name__)


class SparseServer(ParameterServer):
    """One server's share, with sparse messages.

    Args:
        layout: how the model is cut.
        ledger: the books; asynchronous.
        rules: name of each vector but the weights → what is done to it.
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
        rules: Mapping[str, Rule],
        shard: int,
        clock: Callable[[], float],
        tensors: list[int],
        secondary_ratio: float,
        dense_below: int,
        values: str,
    ) -> None:
        replaces = Differences(secondary_ratio, dense_below, values).replace
        super().__init__(layout, ledger, rules, not replaces, clock)
        self._shard = shard_ = Shard(layout, shard, bounds_of(tensors))
        self._number = shard
        self._codec = Codec(shard_.bounds, values)
        self._keys = PieceKeys(layout, ledger.slots)
        self._places = {bucket.index: place for place, bucket in enumerate(shard_.buckets)}
        self._tracker: Tracker
        if replaces:
            self._tracker = ChangeTracker(Codec(shard_.bounds, NEW_VALUES), shard_.offsets, ledger.slots)
        else:
            sizes = np.diff(shard_.bounds).tolist()
            secondary = Selection(sizes, secondary_ratio, dense_below) if sizes and secondary_ratio else None
            self._tracker = DifferenceTracker(self._codec, shard_.offsets, ledger.slots, secondary)
        self._rooms: dict[int, np.ndarray] = {}  # key → where its value is stored
        self._answers: dict[int, dict[int, np.ndarray]] = {}  # rank → number of a piece → values

    @property
    def bytes_kept(self) -> int:
        """Bytes of the model, of each worker's weights, of what is pending for them, and of messages' pieces."""
        return self._tracker.memory + sum(room.nbytes for room in self._rooms.values())

    def join(self, rank: int, nonce: int, offers: Offers | None = None) -> None:
        """See `ParameterServer.join`; what a former holder of the slot was owed is of no use to the new one."""
        if self.ledger.nonce[rank] != nonce:
            self._tracker.join(rank)
            self.ledger.answer[rank] = 0
            self._answers.pop(rank, None)
            log.info("worker %d takes part; %.0f MB are kept", rank, self.bytes_kept / 1e6)
        super().join(rank, nonce, offers)

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
        self._stage(header, int(header["bucket"]), received)

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _keep(self, channel: int, bucket: Bucket, stored: np.ndarray) -> None:
        super()._keep(channel, bucket, stored)
        if bucket.vector != WEIGHTS:
            return
        part, weights = self._places[bucket.index], stored[wire.HEADER_ELEMENTS :]
        if channel == 0:
            self._tracker.place(part, weights)
        else:
            self._tracker.welcome(channel - 1, part, weights)
            if bucket is self._shard.buckets[-1]:
                log.info("worker %d has the model; %.0f MB are kept", channel - 1, self.bytes_kept / 1e6)

    def _place(self, bucket: Bucket) -> int:
        """Places from 0 on are those of the pieces."""
        return ~bucket.index

    def _apply(self, ranks: list[int]) -> None:
        """Subtract each worker's step, and put together what it is owed."""
        for rank in ranks:
            payload = self._inbox.take(rank)
            others = {~place: values for place, values in payload.items() if place < 0}
            pieces = [payload[place] for place in sorted(payload) if place >= 0]
            try:
                step = self._codec.decode(united(pieces))
                self._update(others, self.ledger.pending[rank].message, [rank])
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
        self._tracker.apply(step)
        self._answer(rank)

    def _answer(self, rank: int) -> None:
        """Put together what a worker is owed, where it pulls it from."""
        answer = self._tracker.answer(rank)
        self.ledger.answer[rank] = answer.size
        self._answers[rank] = {}
        targets = []
        for number, size in self._keys.pieces(-(-answer.size // 4)):
            room = self._rooms.get(self._keys.key(rank, number, self._number))
            if room is None:  # the worker has yet to make room
                targets.append(self._answers[rank].setdefault(number, np.empty(size, np.float32)))
            else:
                targets.append(room[wire.HEADER_ELEMENTS :])
        answer.pour(targets)

    def _put_answer(self, rank: int, number: int, key: int) -> None:
        """Put a piece that is waiting where the worker pulls it."""
        values = self._answers.get(rank, {}).pop(number, None)
        if values is not None:
            np.copyto(self._rooms[key][wire.HEADER_ELEMENTS :], values)
