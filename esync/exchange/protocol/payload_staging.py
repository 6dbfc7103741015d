"""Staging of payloads until they are complete, and their sum over workers in rank order.

A payload counts only as a whole: its buckets are copied aside as they come, in any order, and
handed out when the commit is there and none is missing. So a worker that dies in the middle of a
push has sent nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from ...rules import Rule, Step
from ..blockwise import BlockwiseRule, places

#: An array in the memory where the server works: NumPy, or MXNet on a GPU.
Array = Any


class Memory(Protocol):
    """The memory in which a server keeps and adds up arrays: of the host, or of a GPU."""

    def stage(self, values: np.ndarray) -> Array:
        """Return a copy of `values` (float32, host memory) that the server may keep and change."""

    def work_on(self, values: np.ndarray) -> Array:
        """Return the values where rules can work on them: themselves on a host, a copy on a GPU."""

    def add(self, total: Array, values: Array, factor: float) -> None:
        """Add values times a factor to a sum; the values may be changed."""

    def update(
        self, rule: Rule, weights: Array, value: Array, state: Any, step: Step, divisor: float
    ) -> tuple[Array, Any]:
        """Run a rule on a value divided by `divisor`; the value may be changed.

        Returns:
            The arrays of the weights and of the rule's state to keep from now on.
        """

    def undo_rounding(self, new: Array, before: Array, tolerance: float) -> None:
        """Restore the earlier values in `new` where they differ by a small share of their size.

        `tolerance` is that share.
        """

    def fetch(self, array: Array) -> np.ndarray:
        """Return the values of a working array in host memory."""

    def release(self, arrays: Iterable[Array]) -> None:
        """Release staged arrays that are no longer needed."""


def undo_rounding(new: np.ndarray, before: np.ndarray, tolerance: float) -> None:
    """See `Memory.undo_rounding`."""
    with np.errstate(invalid="ignore"):  # infinite values
        np.copyto(new, before, where=np.abs(new - before) <= tolerance * np.abs(before))


class HostMemory:
    """NumPy arrays, kept for the next payload of that size instead of being returned to the system.

    Attributes:
        staged_bytes: bytes staged right now.
        peak_bytes: the most that was staged at one time.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}
        self.staged_bytes = 0
        self.peak_bytes = 0

    def stage(self, values: np.ndarray) -> np.ndarray:
        """Copy into a spare array, or a new one where none is free."""
        spare = self._free.get(values.size)
        copy = spare.pop() if spare else np.empty(values.size, np.float32)
        np.copyto(copy, values)
        self.staged_bytes += copy.nbytes
        self.peak_bytes = max(self.peak_bytes, self.staged_bytes)
        return copy

    def work_on(self, values: np.ndarray) -> np.ndarray:
        """Return the values themselves."""
        return values

    def add(self, total: np.ndarray, values: np.ndarray, factor: float) -> None:
        """Multiply and add block by block."""
        for place in places(0, values.size):
            part = values[place]
            if factor != 1:
                part *= np.float32(factor)
            total[place] += part

    def update(
        self, rule: Rule, weights: np.ndarray, value: Any, state: Any, step: Step, divisor: float
    ) -> tuple[np.ndarray, Any]:
        """Replace the weights in place, because the workers pull from there."""
        if not isinstance(value, np.ndarray):  # a rule for sparse steps writes there itself
            return rule(weights, value, state, step)
        blockwise = BlockwiseRule(rule, state)
        blockwise.run(weights, value, step, divisor)
        return weights, blockwise.state

    def undo_rounding(self, new: np.ndarray, before: np.ndarray, tolerance: float) -> None:
        """See `Memory.undo_rounding`."""
        undo_rounding(new, before, tolerance)

    def fetch(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself, which is there already."""
        return array

    def release(self, arrays: Iterable[np.ndarray]) -> None:
        """Keep the arrays for the next payload."""
        for array in arrays:
            self.staged_bytes -= array.nbytes
            self._free.setdefault(array.size, []).append(array)


class PayloadStaging:
    """Payloads that are arriving, at most one per rank.

    A worker may have to send the payload of an exchange again, with other values. Attempts are
    numbered, from 0, and arrays of an earlier one are ignored.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # Rank → nonce, sequence and attempt, and bucket → values.
        self._staged: dict[int, tuple[tuple[int, int, int], dict[int, Array]]] = {}

    def put(self, rank: int, nonce: int, sequence: int, bucket: int, values: np.ndarray, attempt: int = 0) -> None:
        """Copy one bucket aside.

        What the same rank (a dead worker, say) had begun earlier is discarded.
        """
        staged, whose = self._staged.get(rank), (nonce, sequence, attempt)
        if staged is not None and staged[0][:2] == whose[:2] and attempt < staged[0][2]:
            return
        if staged is None or staged[0] != whose:
            self.discard(rank)
            staged = self._staged[rank] = (whose, {})
        if bucket not in staged[1]:
            staged[1][bucket] = self._memory.stage(values)

    def complete(self, rank: int, nonce: int, sequence: int, buckets: int, attempt: int = 0) -> bool:
        """Return whether all buckets of that payload are here."""
        staged = self._staged.get(rank)
        here = staged is not None and staged[0] == (nonce, sequence, attempt) and len(staged[1]) >= buckets
        return here or buckets == 0

    def take(self, rank: int) -> dict[int, Array]:
        """Return a payload (bucket index → values); the caller releases the arrays."""
        return self._staged.pop(rank, ((0, 0, 0), {}))[1]

    def discard(self, rank: int, up_to: int | None = None) -> None:
        """Discard what a rank has pushed so far.

        With `up_to`, discard only what belongs to that sequence number or an earlier one.
        """
        staged = self._staged.get(rank)
        if staged is not None and (up_to is None or staged[0][1] <= up_to):
            self._memory.release(self.take(rank).values())


#: Adds the content of packed arrays to sums; see `codecs.base.GetSum`.
Unpack = Callable[[Callable[[int, int], tuple[np.ndarray, bool]]], None]
#: Returns the factor of a bucket's values in the sum, given its index.
Factor = Callable[[int], float]


class RankOrderedSum:
    """Adds payloads up in rank order, whatever order they come in.

    So float sums repeat bit for bit. What can be added already is added at once, so that little is
    left to do when the last worker commits, and the staged arrays are free again.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiting: dict[int, tuple[dict[int, Array], Unpack, Factor]] = {}
        self._added: set[int] = set()
        self._next = 0  # every rank below it has been added, or need not be waited for
        self._unpacked: dict[int, np.ndarray] = {}  # arrays for sums of packed values, kept for the next round
        self.total: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self._added) + len(self._waiting)

    def put(
        self,
        rank: int,
        payload: dict[int, Array],
        member: np.ndarray,
        unpack: Unpack = lambda get_sum: None,
        factor: Factor = lambda bucket: 1.0,
    ) -> None:
        """Take a payload (and the duty to release it), then add what no smaller rank holds back.

        Args:
            rank: of the payload's worker.
            payload: bucket index → values.
            member: rank → whether the round waits for it.
            unpack: adds the packed part of the payload to the sums that it asks for, when its turn
                has come.
            factor: by which the values of a bucket are multiplied.
        """
        self._waiting[rank] = payload, unpack, factor
        while self._next < len(member):
            if self._next in self._waiting:
                self._add(self._next)
            elif member[self._next] and self._next not in self._added:
                return
            self._next += 1

    def finish(self) -> dict[int, Array]:
        """Add what is left, and return the sums over the workers by bucket index.

        The arrays are the caller's until `clear`.
        """
        for rank in sorted(self._waiting):
            self._add(rank)
        return self.total

    def clear(self) -> None:
        """Prepare for the next round."""
        self._memory.release(values for index, values in self.total.items() if index not in self._unpacked)
        self.total, self._added, self._next = {}, set(), 0

    def _add(self, rank: int) -> None:
        payload, unpack, factor = self._waiting.pop(rank)
        self._added.add(rank)
        for bucket, values in payload.items():
            if bucket in self.total:
                self._memory.add(self.total[bucket], values, factor(bucket))
                self._memory.release([values])
                continue
            if (own := factor(bucket)) != 1:
                values *= own
            self.total[bucket] = values
        unpack(self._of)

    def _of(self, bucket: int, size: int) -> tuple[np.ndarray, bool]:
        """See `codecs.base.GetSum`."""
        if fresh := bucket not in self.total:
            if bucket not in self._unpacked:
                self._unpacked[bucket] = np.empty(size, np.float32)
            self.total[bucket] = self._unpacked[bucket]
        return self.total[bucket], fresh
