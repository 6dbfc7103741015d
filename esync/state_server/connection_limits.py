"""Limit connections: strangers have little time, callers have shown that they may make requests.

Anybody can open connections. A connection counts as a caller's only after a complete request that
was let in; until then it takes nothing from the workers, because strangers have a few seconds and
places of their own. Where either kind has no place left, the connection that has been silent
longest is dropped.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Protocol


class TrackedConnection(Protocol):
    """A connection."""

    def drop(self) -> None:
        """Close the connection at once."""
        ...


class ConnectionTable:
    """All connections of one server, for use in one thread.

    Args:
        callers: most callers at the same time.
        strangers: most strangers at the same time.
        patience: seconds that a stranger has.
    """

    def __init__(self, callers: int, strangers: int, patience: float) -> None:
        self._most_callers, self._most_strangers, self._patience = callers, strangers, patience
        self._strangers: dict[TrackedConnection, float] = {}  # → when its time is over; in the order of their arrival
        self._callers: dict[TrackedConnection, None] = {}  # the one that has been silent longest first

    def __iter__(self) -> Iterator[TrackedConnection]:
        """Go through all connections that there are now."""
        return iter([*self._strangers, *self._callers])

    def arrive(self, connection: TrackedConnection, now: float) -> None:
        """Add a new connection."""
        if len(self._strangers) >= self._most_strangers:
            self._drop(self._strangers)
        self._strangers[connection] = now + self._patience

    def welcome(self, connection: TrackedConnection) -> None:
        """Note a complete request that was let in: the connection is a caller's from now on."""
        if connection in self._callers:
            del self._callers[connection]
        elif self._strangers.pop(connection, None) is None:
            return  # it has been dropped
        elif len(self._callers) >= self._most_callers:
            self._drop(self._callers)
        self._callers[connection] = None

    def leave(self, connection: TrackedConnection) -> None:
        """Forget a connection that has ended."""
        self._strangers.pop(connection, None)
        self._callers.pop(connection, None)

    def expire(self, now: float, most: int) -> bool:
        """Drop strangers whose time is over, at most so many; tell whether there may be more of them."""
        over = [connection for connection, end in islice(self._strangers.items(), most) if end <= now]
        for connection in over:
            del self._strangers[connection]
            connection.drop()
        return len(over) == most

    def drop_one_stranger(self) -> None:
        """Make room where the process has no files left."""
        if self._strangers:
            self._drop(self._strangers)

    @staticmethod
    def _drop(some: dict[TrackedConnection, float] | dict[TrackedConnection, None]) -> None:
        connection = next(iter(some))
        del some[connection]
        connection.drop()
