"""Peers, known by the addresses at which they listen, and whether this process is connected."""

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from .. import config
from .connections import Address, connections, keep_alive, outgoing
from .names import Lookup

P = TypeVar("P")


def established(among: Collection[Address]) -> set[Address]:
    """Return the addresses that this process is connected to.

    Besides, have the kernel keep connections to `among` alive.
    """
    keep_alive(*config.KEEP_ALIVE, among=among)
    return {connection.there for connection in connections() if connection.established}


class Peers(Generic[P]):
    """Knows where peers listen, and which of them this process is connected to. For one thread.

    Only connections to these places count, and only they are kept alive: what else the user's
    program is connected to is its own business.

    Args:
        established: takes the addresses of the peers, and returns those that this process is
            connected to.
    """

    def __init__(self, established: Callable[[Collection[Address]], Collection[Address]] = established) -> None:
        self._established = established
        self._places: dict[P, tuple[Lookup, int]] = {}

    def add(self, peer: P, host: str, port: int) -> None:
        """Watch a peer, from now on at this place only."""
        self.discard(peer)
        self._places[peer] = (Lookup(host), port)

    def discard(self, peer: P) -> None:
        """Stop watching a peer."""
        if peer in self._places:
            self._places.pop(peer)[0].cancel()

    def connected(self) -> set[P]:
        """Return the peers to which a connection is established."""
        places = {
            peer: {(address, port) for address in lookup.addresses()} for peer, (lookup, port) in self._places.items()
        }
        there = self._established(set().union(*places.values()))
        return {peer for peer, addresses in places.items() if not addresses.isdisjoint(there)}


class OutgoingConnections:
    """Finds the connections that this process has opened, and keeps them alive. For one thread.

    Attributes:
        there: addresses to which such a connection was established at the last look; for any
            thread.
    """

    def __init__(self) -> None:
        self._kept: set[int] = set()  # inodes
        self.there: frozenset[Address] = frozenset()

    def connected(self) -> set[Address]:
        """Return the addresses to which such a connection is established."""
        found = {each.inode: each.there for each in outgoing() if each.established}
        there = set(found.values())
        if not found.keys() <= self._kept:
            keep_alive(*config.KEEP_ALIVE, among=there)
        self._kept = set(found)
        self.there = frozenset(there)
        return there
