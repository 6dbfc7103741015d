"""Sparse messages, which are copied to the arrays that are sent or pulled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SparseMessage:
    """A message in several parts, valid until the next message of the same format or tracker.

    Attributes:
        parts: uint8.
    """

    parts: Sequence[np.ndarray]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(part.size for part in self.parts)

    def copy_to(self, targets: Iterable[np.ndarray]) -> None:
        """Copy the message to arrays (float32) of sufficient total size, and pad it with zeros."""
        rest = [part for part in self.parts if part.size]
        for target in targets:
            free = target.view(np.uint8)
            while rest and free.size:
                count = min(free.size, rest[0].size)
                free[:count] = rest[0][:count]
                free, rest[0] = free[count:], rest[0][count:]
                if not rest[0].size:
                    del rest[0]
            free[:] = 0

    def whole(self) -> np.ndarray:
        """Return the message as one array (uint8)."""
        return np.concatenate(self.parts)
