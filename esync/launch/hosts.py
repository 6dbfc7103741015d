"""Hosts of a description: their addresses, and which of them are this machine."""

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..runtime.environment import is_local_address
from .description import Description, HostEntry
from .yaml_text import DescriptionError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Host:
    """A host of the description.

    Attributes:
        name: its name in the description, which is also that of its folder in the log tree. Several
            names may stand for one machine.
        address: name or IP address at which it is reached.
        local: whether it is this machine, so that its processes are started without ssh.
        ip: the IPv4 address, which ps-lite needs; "" where it cannot be resolved here.
        entry: what the description says about it.
    """

    name: str
    address: str
    local: bool
    ip: str = ""
    entry: HostEntry = field(default_factory=HostEntry)

    @property
    def loopback(self) -> bool:
        """Whether its address is a loopback address, which other machines cannot use."""
        return bool(self.ip) and ipaddress.ip_address(self.ip).is_loopback


def resolve(address: str) -> str:
    """Return the IPv4 address of a name; "" if it has none."""
    try:
        return socket.gethostbyname(address)
    except (OSError, UnicodeError):
        return ""


def is_this_machine(address: str) -> bool:
    """Return whether a name or an address is one of this machine's."""
    return address in ("localhost", socket.gethostname()) or is_local_address(address)


def locate(description: Description, is_here: Callable[[str], bool] = is_this_machine) -> dict[str, Host]:
    """Return all hosts of a description by their names.

    Raises:
        DescriptionError: an address is invalid, or is a loopback address while there are several
            machines.
    """
    hosts = {}
    for name in (*description.host_names(), *description.spare_hosts):
        entry = description.hosts.get(name) or HostEntry()
        address = entry.address or name
        is_local = not entry.by_ssh and entry.srun is None and is_here(address)
        if is_local and entry.workdir:
            raise DescriptionError(f"hosts.{name}.workdir: {name} is this machine, where launch runs in its own folder")
        hosts[name] = Host(name, address, is_local, resolve(address), entry)
    _check_addresses(hosts)
    return hosts


def _check_addresses(hosts: Mapping[str, Host]) -> None:
    """Refuse addresses of IPv6, and a loopback address if there are several machines.

    Processes exchange their addresses, which must denote the same machine on every host.
    """
    remote = [host for host in hosts.values() if not host.local and not host.loopback]
    for host in hosts.values():
        if ":" in host.address:
            raise DescriptionError(
                f"hosts.{host.name}.address: {host.address} is an address of IPv6, but MXNet needs one of IPv4"
            )
        if remote and host.loopback:
            raise DescriptionError(
                f"hosts.{host.name}.address: {host.address} ({host.ip}) is reached from the machine itself only, but "
                f"{remote[0].name} takes part, too; put the address under which {remote[0].name} reaches {host.name}"
            )
