"""Staging of payloads until they are complete, and their sum over workers in rank order.

Only complete payloads count. Their buckets are copied as they arrive, in any order, and used when
the commit and all buckets have arrived. So the incomplete payload of a dead worker has no effect.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from ...rules import Rule, Step
from ..blockwise import BlockwiseRule, block_slices

#: An array in the memory of the server: of NumPy, or of MXNet on a GPU.
Array = Any


class Memory(Protocol):
    """The memory in which a server keeps and adds up arrays: host memory, or that of a GPU."""

    def stage(self, values: np.ndarray) -> Array:
        """Return a copy of `values` (float32, host memory) that the server may keep and change."""

    def to_array(self, values: np.ndarray) -> Array:
        """Return an array for the rules to work on: `values` itself, or a copy on a GPU."""

    def add(self, total: Array, values: Array, factor: float) -> None:
        """Add `factor * values` to `total`; `values` may be changed."""

    def update(
        self, rule: Rule, weights: Array, value: Array, state: Any, step: Step, divisor: float
    ) -> tuple[Array, Any]:
        """Run a rule on `value / divisor`; `value` may be changed.

        Returns:
            The new weights and the new state of the rule.
        """

    def undo_rounding(self, new: Array, before: Array, tolerance: float) -> None:
        """Restore the earlier values in `new` where the relative difference is at most `tolerance`."""

    def fetch(self, array: Array) -> np.ndarray:
        """Return the values of an array in host memory."""

    def release(self, arrays: Iterable[Array]) -> None:
        """Release staged arrays that are no longer needed."""


class HostMemory:
    """Host memory: NumPy arrays, which are reused for payloads of the same size."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}

    def stage(self, values: np.ndarray) -> np.ndarray:
        """Copy the values to a free array, or to a new one."""
        spare = self._free.get(values.size)
        copy = spare.pop() if spare else np.empty(values.size, np.float32)
        np.copyto(copy, values)
        return copy

    def to_array(self, values: np.ndarray) -> np.ndarray:
        """Return the values themselves."""
        return values

    def add(self, total: np.ndarray, values: np.ndarray, factor: float) -> None:
        """Multiply and add block by block, so that blocks stay in the cache."""
        for block in block_slices(0, values.size):
            part = values[block]
            if factor != 1:
                part *= np.float32(factor)
            total[block] += part

    def update(
        self, rule: Rule, weights: np.ndarray, value: Any, state: Any, step: Step, divisor: float
    ) -> tuple[np.ndarray, Any]:
        """Update the weights in place, because the workers pull them from there."""
        if not isinstance(value, np.ndarray):  # rules for sparse steps work in place
            return rule(weights, value, state, step)
        blockwise = BlockwiseRule(rule, state)
        blockwise.run(weights, value, step, divisor)
        return weights, blockwise.state

    @staticmethod
    def undo_rounding(new: np.ndarray, before: np.ndarray, tolerance: float) -> None:
        """See `Memory.undo_rounding`."""
        with np.errstate(invalid="ignore"):  # infinite values
            np.copyto(new, before, where=np.abs(new - before) <= tolerance * np.abs(before))

    def fetch(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def release(self, arrays: Iterable[np.ndarray]) -> None:
        """Keep the arrays for the next payload."""
        for array in arrays:
            self._free.setdefault(array.size, []).append(array)


class PayloadStaging:
    """Payloads that are not complete, or not used yet, at most one per rank.

    A worker may have to send the payload of an exchange again, with other values. Attempts are
    numbered from 0, and arrays of earlier ones are ignored.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # Rank → nonce, sequence and attempt, and bucket → values.
        self._staged: dict[int, tuple[tuple[int, int, int], dict[int, Array]]] = {}

    def put(self, rank: int, nonce: int, sequence: int, bucket: int, values: np.ndarray, attempt: int = 0) -> None:
        """Stage a copy of one bucket; discard another payload of the same rank.

        A bucket of an earlier payload or attempt of the same process is ignored. The array that sets
        a key up is pushed twice, and its second copy may be overtaken by the next payload.
        """
        staged, key = self._staged.get(rank), (nonce, sequence, attempt)
        if staged is not None and staged[0][0] == nonce and staged[0] > key:
            return
        if staged is None or staged[0] != key:
            self.discard(rank)
            staged = self._staged[rank] = (key, {})
        if bucket not in staged[1]:
            staged[1][bucket] = self._memory.stage(values)

    def complete(self, rank: int, nonce: int, sequence: int, buckets: int, attempt: int = 0) -> bool:
        """Return whether all buckets of that payload have arrived."""
        if buckets == 0:
            return True
        staged = self._staged.get(rank)
        return staged is not None and staged[0] == (nonce, sequence, attempt) and len(staged[1]) >= buckets

    def pop(self, rank: int) -> dict[int, Array]:
        """Remove and return a payload (bucket index → values); the caller releases the arrays."""
        return self._staged.pop(rank, ((0, 0, 0), {}))[1]

    def discard(self, rank: int, up_to: int | None = None) -> None:
        """Discard the payload of a rank; with `up_to`, only up to that sequence number."""
        staged = self._staged.get(rank)
        if staged is not None and (up_to is None or staged[0][1] <= up_to):
            self._memory.release(self.pop(rank).values())


#: Adds the content of packed arrays to sums; see `codecs.base.GetSum`.
Unpack = Callable[[Callable[[int, int], tuple[np.ndarray, bool]]], None]
#: Returns the factor of a bucket's values in the sum, given its index.
Factor = Callable[[int], float]


class RankOrderedSum:
    """Adds payloads up in rank order, whatever order they arrive in.

    So sums of floats are reproducible. Payloads are added as soon as all smaller ranks have been,
    which leaves little to do after the last commit, and releases the staged arrays early.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiting: dict[int, tuple[dict[int, Array], Unpack, Factor]] = {}
        self._added: set[int] = set()
        self._next = 0  # all smaller ranks have been added, or are not waited for
        self._unpacked: dict[int, np.ndarray] = {}  # arrays for sums of packed values, kept for the next round
        self.total: dict[int, Array] = {}

    def put(
        self,
        rank: int,
        payload: dict[int, Array],
        member: np.ndarray,
        unpack: Unpack = lambda get_sum: None,
        factor: Factor = lambda bucket: 1.0,
    ) -> None:
        """Add a payload, when all smaller ranks have been added, and release its arrays.

        Args:
            rank: of the payload's worker.
            payload: bucket index → values.
            member: rank → whether the round waits for it.
            unpack: adds the packed part of the payload to the sums.
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
        """Add the remaining payloads, and return the sums by bucket index, valid until `clear`."""
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
            if (multiplier := factor(bucket)) != 1:
                values *= multiplier
            self.total[bucket] = values
        unpack(self._get_sum)

    def _get_sum(self, bucket: int, size: int) -> tuple[np.ndarray, bool]:
        """See `codecs.base.GetSum`."""
        if fresh := bucket not in self.total:
            if bucket not in self._unpacked:
                self._unpacked[bucket] = np.empty(size, np.float32)
            self.total[bucket] = self._unpacked[bucket]
        return self.total[bucket], fresh
