"""A parameter server whose workers send packed payloads and get packed answers; see `packing`.

Channel 0 has the common weights, in float32, for workers that come; the exact ones, which the rule works on, are this
server's own. Other vectors go as ever.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...compression import CompressionError
from ...rules import Rule
from ...sparse import SparseError
from ...weighting import UNIFORM, factor
from ..protocol import wire
from ..protocol.inbox import Array, HostMemory, RankOrderedSum
from ..protocol.layout import WEIGHTS, Bucket, Layout
from ..protocol.ledger import Ledger
from ..protocol.parameter_server import ParameterServer, Shelf
from .packing import Copies, Unpacker


class CompressedServer(ParameterServer):
    """One server's share, with packed messages.

    Memory: twice the weights, one more sum of them, and packed payloads on their way in.

    Args:
        layout: how the model is cut.
        ledger: the books; synchronous.
        rules: name of each vector → what is done to it.
        clock: seconds, monotonic.
        unpacker: the server's half of the packing.
        weighting: how much each worker counts in the mean of a round.
    """

    def __init__(
        self,
        layout: Layout,
        ledger: Ledger,
        rules: Mapping[str, Rule],
        clock: Callable[[], float],
        unpacker: Unpacker,
        weighting: str = UNIFORM,
    ) -> None:
        memory = HostMemory()
        super().__init__(layout, ledger, rules, False, clock, memory, weighting)
        self._unpacker = unpacker
        self._sum: PackedSum = PackedSum(memory, layout, unpacker)
        self._rooms: dict[int, np.ndarray] = {}  # key → where its values are stored
        self._answers: dict[int, np.ndarray] = {}  # key → header and values that have no room yet

    def push(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """See `ParameterServer.push`; keys of packed arrays are dealt with here."""
        if key < 2 * self.layout.servers or not self._unpacker.holds(key):
            super().push(key, received, stored)
            return
        header = wire.header_of(received)
        rank, nonce = int(header["rank"]), int(header["nonce"])
        if self.ledger.failure or not self._is_current(rank, nonce):
            return
        self.heard[rank] = self._clock()
        self._rooms[key] = stored
        if header["kind"] != wire.PAYLOAD:
            self._hand_out(key)
            return
        self._stage(header, int(header["bucket"]), received)

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _keep(self, channel: int, bucket: Bucket, stored: np.ndarray) -> None:
        super()._keep(channel, bucket, stored)
        shelf = self._shelf(bucket.index)
        if bucket.vector == WEIGHTS and shelf.published is stored and np.shares_memory(shelf.weights, stored):
            shelf.weights = stored[wire.HEADER_ELEMENTS :].copy()

    def _on_commit(self, message: Any) -> None:
        with self._refusing():
            super()._on_commit(message)

    def _apply(self, ranks: list[int]) -> None:
        with self._refusing():
            super()._apply(ranks)

    def _weigh(self, rank: int, payload: dict[int, Array], samples: int) -> None:
        """Packed values are multiplied when they are unpacked."""
        self._sum.factors[rank] = {name: factor(weighting, samples) for name, weighting in self._weightings.items()}

    def _update(self, values: dict[int, Array], message: Any, ranks: list[int]) -> None:
        """Run the rule, and lead the workers' weights towards its result, bucket by bucket."""

        def updated() -> Iterator[tuple[int, Copies]]:
            for index, value in values.items():
                self._update_bucket(index, value, message, ranks)
                shelf = self._shelves[index]
                if self.layout.buckets[index].vector == WEIGHTS:
                    yield index, Copies(shelf.weights, shelf.published[wire.HEADER_ELEMENTS :])

        self._answers = {}
        answers, self.ledger.answer[:] = self._unpacker.answer(updated(), len(ranks), self._room)
        for key, place in answers:
            # The round under way is only counted when all of it has been done.
            wire.stamp(self._array(key), wire.WEIGHTS, 0, 0, self.ledger.step + 1, place)

    def _assign(self, shelf: Shelf, weights: Array) -> None:
        """The exact weights, which nobody pulls, need not stay where they are."""
        if np.shares_memory(shelf.weights, shelf.published):
            super()._assign(shelf, weights)
        else:
            shelf.weights = weights

    def _room(self, key: int, elements: int) -> np.ndarray:
        """Where the values of an array of the answer are put."""
        if key not in self._rooms:
            self._answers[key] = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
        return self._array(key)[wire.HEADER_ELEMENTS :]

    def _array(self, key: int) -> np.ndarray:
        """From where the workers pull an array of the answer; aside, until some worker has shown where that is."""
        return self._rooms[key] if key in self._rooms else self._answers[key]

    def _hand_out(self, key: int) -> None:
        """Put an array of the answer, header and all, where a worker has just shown."""
        if key in self._answers:
            np.copyto(self._rooms[key], self._answers.pop(key))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """A payload that cannot be read, or a model that is no use any more, ends the run."""
        try:
            yield
        except (CompressionError, SparseError) as error:
            self.ledger.abort(f"a compressed payload or model: {error}; nothing was done with it")
            self._publish_status()


class PackedSum(RankOrderedSum):
    """The same sum of payloads that are packed; they wait as they are."""

    def __init__(self, memory: HostMemory, layout: Layout, unpacker: Unpacker) -> None:
        super().__init__(memory)
        self._layout, self._unpacker = layout, unpacker
        self.factors: dict[int, dict[str, float]] = {}  # rank → vector → what its values count
        self._arrays: dict[int, np.ndarray] = {}

    def clear(self) -> None:
        """See `RankOrderedSum.clear`; the arrays are kept for the next round."""
        self.total, self._added, self._next = {}, set(), 0

    def _add(self, rank: int) -> None:
        payload: Mapping[int, np.ndarray] = self._waiting.pop(rank)
        self._added.add(rank)
        buckets = self._layout.buckets
        packed, factors = {}, self.factors.pop(rank)
        for place, values in payload.items():
            if place < len(buckets) and (vector := buckets[place].vector) != WEIGHTS:
                target, fresh = self._of(place, values.size)
                if fresh:
                    target.fill(0)
                target += values if (own := factors[vector]) == 1 else np.float32(own) * values
            else:
                packed[place] = values
        self._unpacker.add(packed, self._of, factors[WEIGHTS])
        self._memory.release(payload.values())

    def _of(self, index: int, size: int) -> tuple[np.ndarray, bool]:
        """See `packing.Total`."""
        fresh = index not in self.total
        if fresh:
            self.total[index] = self._arrays.setdefault(index, np.empty(size, np.float32))
        return self.total[index], fresh
