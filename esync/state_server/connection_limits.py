"""Limits on connections: strangers have little time, callers have proved that they may call.

Anybody can open connections. A connection belongs to a *stranger* until a complete request has been
let in over it, and then to a *caller*. Strangers take nothing from the workers, because they have
only a few seconds, and places of their own. Where either kind has no place left, the connection
that has been silent longest is dropped.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Protocol


class TrackedConnection(Protocol):
    """A connection in the table."""

    def drop(self) -> None:
        """Close the connection at once."""
        ...


class ConnectionTable:
    """All connections of one server, for use in one thread.

    Args:
        callers: largest number of callers at the same time.
        strangers: largest number of strangers at the same time.
        patience: seconds that a stranger has.
    """

    def __init__(self, callers: int, strangers: int, patience: float) -> None:
        self._most_callers, self._most_strangers, self._patience = callers, strangers, patience
        self._strangers: dict[TrackedConnection, float] = {}  # → when its time is over; in the order of their arrival
        self._callers: dict[TrackedConnection, None] = {}  # the one that has been silent longest first

    def __iter__(self) -> Iterator[TrackedConnection]:
        """Iterate over all present connections."""
        return iter([*self._strangers, *self._callers])

    def arrive(self, connection: TrackedConnection, now: float) -> None:
        """Add a new connection."""
        if len(self._strangers) >= self._most_strangers:
            self._drop(self._strangers)
        self._strangers[connection] = now + self._patience

    def welcome(self, connection: TrackedConnection) -> None:
        """Note a complete request that was let in: the connection is now a caller's."""
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
        """Drop at most `most` strangers whose time is over; return whether there may be more."""
        over = [connection for connection, end in islice(self._strangers.items(), most) if end <= now]
        for connection in over:
            del self._strangers[connection]
            connection.drop()
        return len(over) == most

    def drop_one_stranger(self) -> None:
        """Make room where the process has no file descriptors left."""
        if self._strangers:
            self._drop(self._strangers)

    @staticmethod
    def _drop(some: dict[TrackedConnection, float] | dict[TrackedConnection, None]) -> None:
        connection = next(iter(some))
        del some[connection]
        connection.drop()
