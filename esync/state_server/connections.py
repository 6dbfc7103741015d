"""Who is connected: strangers, whose time is short, and callers, who have shown that they belong here.

Anybody can open connections. So one counts as a caller's only after a complete request that was let
in, and until then it takes nothing from the workers: strangers have a few seconds and places of
their own. Where either kind has no place left, it is the one that has been silent longest that goes.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Protocol


class Visitor(Protocol):
    """One connection."""

    def drop(self) -> None:
        """End it at once."""
        ...


class Connections:
    """All connections of one server. For one thread.

    Args:
        callers: most callers at the same time.
        strangers: most strangers at the same time.
        patience: seconds that a stranger has.
    """

    def __init__(self, callers: int, strangers: int, patience: float) -> None:
        self._most_callers, self._most_strangers, self._patience = callers, strangers, patience
        self._strangers: dict[Visitor, float] = {}  # → when its time is over; in the order of their arrival
        self._callers: dict[Visitor, None] = {}  # the one that has been silent longest first

    def __iter__(self) -> Iterator[Visitor]:
        """Go through all connections that there are now."""
        return iter([*self._strangers, *self._callers])

    def arrive(self, visitor: Visitor, now: float) -> None:
        """Take a new connection."""
        if len(self._strangers) >= self._most_strangers:
            self._drop(self._strangers)
        self._strangers[visitor] = now + self._patience

    def welcome(self, visitor: Visitor) -> None:
        """Take a complete request that was let in: from now on this is a caller."""
        if visitor in self._callers:
            del self._callers[visitor]
        elif self._strangers.pop(visitor, None) is None:
            return  # it has been dropped
        elif len(self._callers) >= self._most_callers:
            self._drop(self._callers)
        self._callers[visitor] = None

    def leave(self, visitor: Visitor) -> None:
        """Forget a connection that has ended."""
        self._strangers.pop(visitor, None)
        self._callers.pop(visitor, None)

    def expire(self, now: float, most: int) -> bool:
        """Drop strangers whose time is over, at most so many; tell whether there may be more of them."""
        over = [visitor for visitor, end in islice(self._strangers.items(), most) if end <= now]
        for visitor in over:
            del self._strangers[visitor]
            visitor.drop()
        return len(over) == most

    def drop_one_stranger(self) -> None:
        """Make room where the process has no files left."""
        if self._strangers:
            self._drop(self._strangers)

    @staticmethod
    def _drop(some: dict[Visitor, float] | dict[Visitor, None]) -> None:
        visitor = next(iter(some))
        del some[visitor]
        visitor.drop()
