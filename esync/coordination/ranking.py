"""Which worker is the slowest, found in O(log n) after every message of a thousand workers."""

import math
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

from .records import Record


class Ranking:
    """The workers that take part, by their speed.

    A heap of (−speed, rank) has an entry for every speed that was told, so that telling one costs O(log n), where
    looking at a thousand workers would cost more than all the rest of an answer. Entries that are out of date are
    thrown away when they come to its front.

    Args:
        records: of all workers, by rank; changed by others.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._heap: list[tuple[float, int]] = []

    def forget(self) -> None:
        """Others take part now: look at all of them the next time."""
        self._heap = []

    def told(self, record: Record) -> None:
        """This worker, which takes part, has another speed now."""
        if self._heap:
            heappush(self._heap, (-record.speed_rank, record.rank))

    def slowest(self, absent: Collection[int]) -> Record:
        """Return the record of the slowest worker that takes part, of equals that of the lowest rank.

        Args:
            absent: ranks that do not take part; all count where these are all.
        """
        heap, records = self._heap, self._records
        while True:
            if not heap or len(heap) > 4 * len(records):
                away = set(absent) if len(absent) < len(records) else set()
                heap[:] = [(-record.speed_rank, record.rank) for record in records if record.rank not in away]
                heapify(heap)
            negative, rank = heap[0]
            record = records[rank]
            if (record.capability or math.inf) == -negative:
                return record
            heappop(heap)
