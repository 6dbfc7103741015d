"""The hosts of a description: their addresses, and which of them are this machine."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from .description import Description

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Host:
    """A host as the description names it.

    Attributes:
        name: also the name of its folder in the log tree. Several names may stand for one machine.
        address: name or IP address under which the others reach it.
        here: whether it is this machine.
    """

    name: str
    address: str
    here: bool


def is_this_machine(address: str) -> bool:
    """Whether a name or an address is one of this machine's: then a socket can be bound to it."""
    if address in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
        except OSError:
            return False
    return True


def locate(description: Description, is_here: Callable[[str], bool] = is_this_machine) -> dict[str, Host]:
    """All hosts of a description by their names."""
    hosts = {}
    for name in description.host_names():
        entry = description.hosts.get(name)
        address = (entry and entry.address) or name
        hosts[name] = Host(name, address, is_here(address))
    return hosts
