"""Cluster settings from the environment: MXNet's DMLC_* variables, checked before MXNet reads them.

MXNet itself reads these variables, and waits for ever in silence where one is missing or wrong.
"""

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from .errors import ExpectedError

ROLES = ("worker", "server", "scheduler")
#: The launcher says in it which slot a replacement takes over.
SLOT_VARIABLE = "ESYNC_SLOT"
#: Set where the launcher knows what to do when this worker dies: then it need not end the whole
#: job. How often the launcher is going to replace it.
SUPERVISED_VARIABLE = "ESYNC_SUPERVISED"


class EnvironmentProblemError(ExpectedError, ValueError):
    """A DMLC_* variable is missing or wrong; the message names it and says what it should be."""


@dataclass(frozen=True)
class Cluster:
    """Address of the scheduler, and numbers of processes of each role.

    Attributes:
        host: address of the scheduler (DMLC_PS_ROOT_URI).
        port: its port (DMLC_PS_ROOT_PORT).
        servers: number of parameter servers (DMLC_NUM_SERVER).
        workers: number of worker slots (DMLC_NUM_WORKER).
        address: the scheduler's, as a number.
    """

    ADVICE: ClassVar[str] = (
        "check that address and the firewall, that all of them were started, and set DMLC_INTERFACE or DMLC_NODE_HOST "
        "where a machine has several network interfaces"
    )

    host: str
    port: int
    servers: int
    workers: int
    address: str = ""

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> "Cluster":
        """Read and check the variables; writes the scheduler's address back as an IP, which is what MXNet needs.

        Raises:
            EnvironmentProblemError: a variable is missing, is no number, or the host name is not
                known.
        """
        host = _required(environment, "DMLC_PS_ROOT_URI", "the address of the scheduler, for instance 10.1.1.34")
        port = _number(environment, "DMLC_PS_ROOT_PORT", "the scheduler's port, for instance 9091", 65535)
        servers = _number(environment, "DMLC_NUM_SERVER", "the number of parameter servers, for instance 1")
        workers = _number(environment, "DMLC_NUM_WORKER", "the number of workers, for instance 6")
        if environment.get("PS_RESEND", "0") != "0":
            raise EnvironmentProblemError("PS_RESEND is set: ps-lite's resending is not supported, leave it out")
        try:
            environment["DMLC_PS_ROOT_URI"] = socket.gethostbyname(host)
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name at all
            raise EnvironmentProblemError(f"DMLC_PS_ROOT_URI: cannot resolve the host {host!r}: {error}") from None
        _check_own_address(environment)
        return cls(host, port, servers, workers, environment["DMLC_PS_ROOT_URI"])

    @property
    def everyone(self) -> str:
        """Return whom a process of this cluster waits for at its start."""
        return f"the scheduler at {self.host}:{self.port}, {self.servers} server(s) and {self.workers} worker(s) in all"


def take_role(role: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make this process a worker, server or scheduler; EnvironmentProblemError where DMLC_ROLE says otherwise."""
    given = environment.setdefault("DMLC_ROLE", role)
    if given != role:
        raise EnvironmentProblemError(f"DMLC_ROLE is {given!r}, but this is the program of the {role}")


def replacement_promised(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the launcher is going to start another process in the place of this one, should it die."""
    left = environment.get(SUPERVISED_VARIABLE, "")
    return left.isdecimal() and int(left) > 0


def state_server_address(
    given: str | None = None, environment: MutableMapping[str, str] = os.environ
) -> tuple[str, int]:
    """Return host and port of the state server, from the text host:port or from ESYNC_STATE_SERVER.

    Raises:
        EnvironmentProblemError: there is no address, or it is none.
    """
    return parse_state_server_address(
        given or environment.get("ESYNC_STATE_SERVER", ""),
        "; give it to the algorithm, with --state-server-ip and --state-server-port, or in ESYNC_STATE_SERVER (or fix "
        "the number of local iterations with --local-iterations)",
    )


def parse_state_server_address(text: str, advice: str = "") -> tuple[str, int]:
    """Return host and port of host:port, http://host:port or [IPv6 address]:port.

    Args:
        text: the address.
        advice: what the error says at its end.

    Raises:
        EnvironmentProblemError: it is no address.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("http://").strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise EnvironmentProblemError(f"the state server's address is {text!r}, but should be host:port{advice}")
    return host, int(port)


def _check_own_address(environment: Mapping[str, str]) -> None:
    """The address that this process gives the others: where it is not this machine's, MXNet fails only much later."""
    own, interface = environment.get("DMLC_NODE_HOST", ""), environment.get("DMLC_INTERFACE", "")
    if own and not is_own(own):
        raise EnvironmentProblemError(
            f"DMLC_NODE_HOST is {own!r}, which is no address of this machine; it should be the one under which the "
            "others reach it, for instance 10.1.1.33"
        )
    known = [name for _, name in socket.if_nameindex()]
    if not own and interface and interface not in known:
        raise EnvironmentProblemError(
            f"DMLC_INTERFACE is {interface!r}, but this machine's network interfaces are {', '.join(known)}"
        )


def is_own(address: str) -> bool:
    """Return whether a name or an address is one of this machine's: then a socket can be bound to it."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
        except OSError:
            return False
    return True


def _required(environment: MutableMapping[str, str], name: str, meaning: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise EnvironmentProblemError(f"{name} is not set: it is {meaning}")
    return value


def _number(environment: MutableMapping[str, str], name: str, meaning: str, most: int = 100_000) -> int:
    text = _required(environment, name, meaning)
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise EnvironmentProblemError(f"{name} is {text!r}, but should be a whole number of 1 to {most}: {meaning}")
    return int(text)
