"""Weights that the user's program assigns between two steps, and how all workers take them over.

Programs assign weights by `load_parameters`, `set_data`, `initialize(force_reinit=True)` or in
place, to go back to the best ones or to clip, project or prune them. A worker tells the others by
scalars of its next commit. Where all have assigned the same, that takes effect for all of them after
the same round.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..runtime.errors import ExpectedError, enumeration

#: Scalars of a commit → how those of a round are combined: the digest of what the worker has
#: assigned (0: nothing), twice, and whether it has assigned it since its commit before.
LOWEST, HIGHEST, RECENT = "lowest_assignment", "highest_assignment", "recent_assignment"
SCALARS: Mapping[str, str] = {LOWEST: "minimum", HIGHEST: "maximum", RECENT: "minimum"}

#: Parameters that an error names.
NAMES_SHOWN = 3


class AssignedWeightsError(ExpectedError):
    """The program has assigned weights that not all workers can take over; the message names them."""


@dataclass(frozen=True)
class Assignment:
    """Weights that were assigned.

    Attributes:
        names: of the parameters.
        values: place of each parameter in the flat weights → its values (float32).
    """

    names: tuple[str, ...]
    values: Mapping[int, np.ndarray]

    @cached_property
    def digest(self) -> float:
        """A whole number above 0 that differs where places or values do."""
        digest = zlib.crc32(str(list(self.values)).encode())
        for values in self.values.values():
            digest = zlib.crc32(values.tobytes(), digest)
        return digest + 1.0

    def __str__(self) -> str:
        """Name the parameters, a few of them where there are many."""
        return enumeration(self.names, NAMES_SHOWN)


def scalars_of(assignment: Assignment | None, recent: bool = True) -> dict[str, float]:
    """Return the scalars that tell the others of an assignment, or that there is none."""
    digest = 0.0 if assignment is None else assignment.digest
    return {LOWEST: digest, HIGHEST: digest, RECENT: float(assignment is not None and recent)}


def all_assigned(assignment: Assignment | None, scalars: Mapping[str, float]) -> bool:
    """Return whether every worker of a round has assigned the same as this one.

    Args:
        assignment: of this worker.
        scalars: the combined ones of the round.
    """
    return assignment is not None and scalars[LOWEST] == scalars[HIGHEST] == assignment.digest


def some_assigned(scalars: Mapping[str, float]) -> bool:
    """Return whether some worker of a round has assigned weights."""
    return scalars.get(HIGHEST, 0.0) > 0


class PendingAssignment:
    """This worker's newest assignment of weights, in algorithms with local iterations.

    Until all workers have assigned the same, it counts as a part of this worker's local update.
    Then all begin the next round with the assigned weights.
    """

    def __init__(self) -> None:
        self._newest: Assignment | None = None
        self._recent = False

    def add(self, assignment: Assignment) -> None:
        """Note an assignment."""
        self._newest, self._recent = assignment, True

    def scalars(self) -> dict[str, float]:
        """Return the scalars of the commit that is about to be sent."""
        scalars = scalars_of(self._newest, self._recent)
        self._recent = False
        return scalars

    def agreed(self, scalars: Mapping[str, float]) -> Assignment | None:
        """Return what all workers have assigned by the end of a round, None if they have not."""
        assignment = self._newest
        if not all_assigned(assignment, scalars):
            return None
        self._newest = None
        return assignment

    @staticmethod
    def brought(scalars: Mapping[str, float]) -> bool:
        """Return whether all workers have assigned it in that round, so that their updates brought it."""
        return bool(scalars[RECENT])
