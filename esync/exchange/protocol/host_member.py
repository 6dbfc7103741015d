"""A worker's entry in the table that the workers of its host share; see `host_group.table_type`."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..host_group import NOBODY, HostGroup


class HostMember:
    """The entry of this worker in the table of its host.

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
        """Reset the entry for this process; `next_round` as in `set_next_round`."""
        with self.group.locked() as table:
            entry = self.entry(table)
            table["workers"][self.position] = np.zeros((), entry.dtype)
            entry["nonce"], entry["carrier"], entry["next_round"] = self.nonce, NOBODY, next_round

    def set_next_round(self, number: int) -> None:
        """Set the earliest round that this worker may take part in next; 0: none."""
        with self.group.locked() as table:
            if self.owns_entry(table):
                self.entry(table)["next_round"] = number

    def entry(self, table: Any) -> Any:
        """Return a writable view of this worker's entry."""
        return table["workers"][self.position]

    def owns_entry(self, table: Any) -> bool:
        """Return whether the entry still belongs to this process, and not to a replacement."""
        return bool(self.entry(table)["nonce"] == self.nonce)

    def is_present(self, table: Any, rank: int, nonce: int) -> bool:
        """Return whether a process of the host owns its entry and is alive."""
        position = self.group.ranks.index(rank)
        return bool(table["workers"][position]["nonce"] == nonce) and self.group.alive(rank)

    def mask(self, names: Collection[str]) -> int:
        """Return the mask by which the table represents these vectors."""
        return sum(1 << bit for bit, name in enumerate(self._vectors) if name in names)
