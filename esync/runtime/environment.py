"""Cluster settings from the environment: MXNet's DMLC_* variables, which are checked here first.

MXNet itself reads these variables, too, but waits in silence for ever if one is missing or wrong.
"""

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from .errors import ExpectedError

ROLES = ("worker", "server", "scheduler")
#: Variable with the slot that a replacement takes over, set by the launcher.
SLOT_VARIABLE = "ESYNC_SLOT"
#: Variable that says how often the launcher will replace this worker. It is set if the launcher can
#: handle the worker's death, which therefore need not end the whole job.
SUPERVISED_VARIABLE = "ESYNC_SUPERVISED"
#: Variable that tells the scheduler where the launcher starts the other processes, as JSON.
PLACES_VARIABLE = "ESYNC_PLACES"


class EnvironmentProblemError(ExpectedError, ValueError):
    """Raised when a DMLC_* variable is missing or wrong; the message says what it should be."""


@dataclass(frozen=True)
class Cluster:
    """Address of the scheduler, and number of processes of each role.

    Attributes:
        host: address of the scheduler (DMLC_PS_ROOT_URI).
        port: its port (DMLC_PS_ROOT_PORT).
        servers: number of parameter servers (DMLC_NUM_SERVER).
        workers: number of worker slots (DMLC_NUM_WORKER).
        address: the scheduler's IP address.
    """

    ADVICE: ClassVar[str] = (
        "check that address and the firewall, that it was started, and set DMLC_INTERFACE or DMLC_NODE_HOST where a "
        "machine has several network interfaces"
    )

    host: str
    port: int
    servers: int
    workers: int
    address: str = ""

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> "Cluster":
        """Read and check the variables.

        The scheduler's address is written back as an IP address, which MXNet needs.

        Raises:
            EnvironmentProblemError: a variable is missing or is not a number, or the host's name is
                unknown.
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
    def scheduler(self) -> str:
        """The scheduler, in words."""
        return f"the scheduler at {self.host}:{self.port}"


def take_role(role: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make this process a worker, server or scheduler.

    Raises:
        EnvironmentProblemError: DMLC_ROLE says otherwise.
    """
    given = environment.setdefault("DMLC_ROLE", role)
    if given != role:
        raise EnvironmentProblemError(f"DMLC_ROLE is {given!r}, but this is the program of the {role}")


def replacement_promised(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the launcher will replace this process if it dies."""
    left = environment.get(SUPERVISED_VARIABLE, "")
    return left.isdecimal() and int(left) > 0


def state_server_address(
    given: str | None = None, environment: MutableMapping[str, str] = os.environ
) -> tuple[str, int]:
    """Return host and port of the state server, from the text host:port or from ESYNC_STATE_SERVER.

    Raises:
        EnvironmentProblemError: there is no address, or it is malformed.
    """
    return parse_state_server_address(
        given or environment.get("ESYNC_STATE_SERVER", ""),
        "; give it to the algorithm, with --state-server-ip and --state-server-port, or in ESYNC_STATE_SERVER (or fix "
        "the number of local iterations with --local-iterations)",
    )


def parse_state_server_address(text: str, advice: str = "") -> tuple[str, int]:
    """Return host and port from host:port, http://host:port or [IPv6 address]:port.

    Args:
        text: the address.
        advice: advice at the end of the error's message.

    Raises:
        EnvironmentProblemError: the address is malformed.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("http://").strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise EnvironmentProblemError(f"the state server's address is {text!r}, but should be host:port{advice}")
    return host, int(port)


def _check_own_address(environment: Mapping[str, str]) -> None:
    """Check the address that this process gives the others.

    Where it is not one of this machine's, MXNet would fail only much later.
    """
    own, interface = environment.get("DMLC_NODE_HOST", ""), environment.get("DMLC_INTERFACE", "")
    if own and not is_own(own):
        raise EnvironmentProblemError(
            f"DMLC_NODE_HOST is {own!r}, which is not an address of this machine; it should be the one under which the "
            "others reach it, for instance 10.1.1.33"
        )
    known = [name for _, name in socket.if_nameindex()]
    if not own and interface and interface not in known:
        raise EnvironmentProblemError(
            f"DMLC_INTERFACE is {interface!r}, but this machine's network interfaces are {', '.join(known)}"
        )


def is_own(address: str) -> bool:
    """Return whether a name or address is this machine's, so that a socket can be bound to it."""
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
