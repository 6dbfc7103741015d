"""The bound on staleness: how far workers may be ahead of the slowest one (stale synchronous parallel)."""

import math

import numpy as np


class StalenessBound:
    """Decides when the workers that are too far ahead may continue.

    A worker waits until its newest commit is acknowledged, so the acknowledgement is held back.

    Args:
        limit: number of commits that a worker may be ahead of the slowest member; infinite: any.
        slots: number of worker slots.

    Attributes:
        held: rank → the number of its commit that has been applied and not yet acknowledged.
    """

    def __init__(self, limit: float, slots: int) -> None:
        self._limit = limit
        self._before = np.zeros(slots, np.int64)  # commits of a slot before this job, from its checkpoint
        self.held: dict[int, int] = {}

    @property
    def limited(self) -> bool:
        """Whether there is a bound."""
        return self._limit < math.inf

    def count_from(self, rank: int, commits: int) -> None:
        """Count the commits of a slot from this number on.

        A worker's part of the checkpoint may be missing or older than the others', so workers are
        compared by their commits since the start of this job.
        """
        self._before[rank] = commits

    def within(self, acknowledged: np.ndarray, member: np.ndarray) -> list[int]:
        """Return the ranks with held commits that are within the limit of the slowest member.

        Args:
            acknowledged: array of slots: number of the newest acknowledged commit.
            member: array of slots: whether the slot's worker is a member.
        """
        commits = acknowledged - self._before
        for rank, sequence in self.held.items():
            commits[rank] = sequence - self._before[rank]
        slowest = commits[member].min() if member.any() else math.inf
        return sorted(rank for rank in self.held if commits[rank] - slowest <= self._limit)
