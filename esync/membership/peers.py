"""Peers, identified by the addresses at which they listen, and this process's connections to them."""

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from .. import config
from .connections import Address, connections, keep_alive, outgoing

P = TypeVar("P")


def established(among: Collection[Address]) -> set[Address]:
    """Return the addresses to which this process is connected, and keep connections to `among` alive."""
    keep_alive(*config.KEEP_ALIVE, among=among)
    return {connection.remote for connection in connections() if connection.established}


class Peers(Generic[P]):
    """The addresses of peers, and this process's connections to them. For use by one thread.

    Other connections of the user's program are ignored.

    Args:
        established: called with the addresses of the peers; returns those to which this process is
            connected.
    """

    def __init__(self, established: Callable[[Collection[Address]], Collection[Address]] = established) -> None:
        self._established = established
        self._places: dict[P, Address] = {}

    def add(self, peer: P, host: str, port: int) -> None:
        """Watch a peer at this address, which replaces an earlier one."""
        self._places[peer] = host, port

    def discard(self, peer: P) -> None:
        """Stop watching a peer."""
        self._places.pop(peer, None)

    def connected(self) -> set[P]:
        """Return the peers to which a connection is established."""
        established = self._established(set(self._places.values()))
        return {peer for peer, address in self._places.items() if address in established}


class OutgoingConnections:
    """Finds the connections that this process has opened, and keeps them alive. For use by one thread.

    Attributes:
        established: addresses to which such a connection was established at the last look; for any
            thread.
    """

    def __init__(self) -> None:
        self._inodes: set[int] = set()
        self.established: frozenset[Address] = frozenset()

    def connected(self) -> set[Address]:
        """Return the addresses to which such a connection is established."""
        by_inode = {connection.inode: connection.remote for connection in outgoing() if connection.established}
        addresses = set(by_inode.values())
        if not by_inode.keys() <= self._inodes:
            keep_alive(*config.KEEP_ALIVE, among=addresses)
        self._inodes = set(by_inode)
        self.established = frozenset(addresses)
        return addresses
