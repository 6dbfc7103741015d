"""A worker's entry in the table that the workers of its host share; see `host_group.table_type`."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..host_group import NOBODY, HostGroup


class HostMember:
    """This worker among those of its host.

    Args:
        group: the memory that the workers of the host share.
        nonce: of this process.
        vectors: names of all vectors, in the layout's order.

    Attributes:
        group: as given.
        rank: of this worker.
        nonce: as given.
        position: of this worker among those of the host.
    """

    def __init__(self, group: HostGroup, nonce: int, vectors: Sequence[str]) -> None:
        self.group, self.nonce, self.rank = group, nonce, group.rank
        self.position = group.ranks.index(group.rank)
        self._vectors = vectors

    def enter(self, next_round: int) -> None:
        """Begin an entry for this process, which may take part from that round on; 0: not yet."""
        with self.group.locked() as table:
            entry = self.entry(table)
            table["workers"][self.position] = np.zeros((), entry.dtype)
            entry["nonce"], entry["carrier"], entry["next_round"] = self.nonce, NOBODY, next_round

    def set_next_round(self, number: int) -> None:
        """Note the earliest round that this worker may take part in next; 0: it takes part in none."""
        with self.group.locked() as table:
            if self.owns_entry(table):
                self.entry(table)["next_round"] = number

    def entry(self, table: Any) -> Any:
        """Return this worker's entry in the table, to be changed in place."""
        return table["workers"][self.position]

    def owns_entry(self, table: Any) -> bool:
        """Return whether no other process has taken over this worker's entry."""
        return bool(self.entry(table)["nonce"] == self.nonce)

    def is_present(self, table: Any, rank: int, nonce: int) -> bool:
        """Return whether a process still has its entry, and is alive."""
        position = self.group.ranks.index(rank)
        return bool(table["workers"][position]["nonce"] == nonce) and self.group.alive(rank)

    def mask(self, names: Collection[str]) -> int:
        """Return the bits that stand for these vectors in the table."""
        return sum(1 << bit for bit, name in enumerate(self._vectors) if name in names)
