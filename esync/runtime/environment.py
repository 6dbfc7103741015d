"""Cluster settings from the environment: MXNet's DMLC_* variables, which are checked here first.

MXNet also reads these variables, but hangs without a message if one is missing or wrong.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from .errors import ExpectedError

ROLES = ("worker", "server", "scheduler")
#: Variable with the slot that a replacement takes over, set by the launcher.
SLOT_VARIABLE = "ESYNC_SLOT"
#: Variable with the number of replacements of this worker that the launcher will still start. It is set
#: if the launcher handles the worker's death, which then need not end the job.
SUPERVISED_VARIABLE = "ESYNC_SUPERVISED"
#: Variable that tells the scheduler where the launcher starts the other processes, as JSON.
PLACES_VARIABLE = "ESYNC_PLACES"
#: Variables that describe the role of one process in one job, of ps-lite, MPI's process managers and
#: this package. Other variables ESYNC_… apply to the whole job.
_PART_IN_JOB = re.compile(
    r"PORT|DMLC_\w+|PS_(RESEND|DROP_MSG)\w*|(PMI|PMIX|OMPI_COMM_WORLD)_\w+"
    r"|ESYNC_(?!TOKEN|STATE_SERVER_CA|ALLOWED_HOSTS|TEST_)\w+"
)
#: Variables with which ps-lite uses other connections, or drops or repeats messages → their defaults.
_UNSUPPORTED = {"PS_RESEND": "0", "PS_DROP_MSG": "0", "DMLC_LOCAL": "0", "DMLC_PS_VAN_TYPE": "zmq"}


#: Ports that this process has found free, and may be listening on.
_free_ports: set[int] = set()


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
        "check that address and the firewall, that python -m esync.scheduler was started there (MXNet's own does not "
        "answer), and set DMLC_INTERFACE or DMLC_NODE_HOST where a machine has several network interfaces"
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
        for name, usual in _UNSUPPORTED.items():
            if environment.get(name, usual) not in ("", usual):
                raise EnvironmentProblemError(f"{name} is set, and this way of ps-lite is not supported: leave it out")
        environment.pop(
            "DMLC_RANK", None
        )  # set by ps-lite in a worker, and inherited by its children, which must not use that rank
        environment["DMLC_PS_ROOT_URI"] = _ipv4("DMLC_PS_ROOT_URI", host)
        _check_local_address(environment)
        return cls(host, port, servers, workers, environment["DMLC_PS_ROOT_URI"])

    @property
    def scheduler(self) -> str:
        """The scheduler, in words."""
        return f"the scheduler at {self.host}:{self.port}"


def take_role(role: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make this process a worker, server or scheduler.

    Raises:
        EnvironmentProblemError: DMLC_ROLE has another value.
    """
    current = environment.setdefault("DMLC_ROLE", role)
    if current != role:
        raise EnvironmentProblemError(f"DMLC_ROLE is {current!r}, but this is the program of the {role}")


def replacement_promised() -> bool:
    """Return whether the launcher will replace this process if it dies."""
    remaining = os.environ.get(SUPERVISED_VARIABLE, "")
    return remaining.isdecimal() and int(remaining) > 0


def state_server_address(
    address: str | None = None, environment: MutableMapping[str, str] = os.environ
) -> tuple[str, int]:
    """Return host and port of the state server, from the text host:port or from ESYNC_STATE_SERVER.

    Raises:
        EnvironmentProblemError: there is no address, or it is malformed.
    """
    return parse_state_server_address(
        address or environment.get("ESYNC_STATE_SERVER", ""),
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
    if not re.fullmatch(r"[^\s/]+", host) or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise EnvironmentProblemError(f"the state server's address is {text!r}, but should be host:port{advice}")
    return host, int(port)


def without_part_in_job(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables without those that describe a process's role in a job.

    Launch starts every process with these, because the shell of its user, or of another host, may have
    variables for a process that was started by hand, or PORT for another purpose.
    """
    return {name: value for name, value in environment.items() if not _PART_IN_JOB.fullmatch(name)}


def _ipv4(variable: str, host: str) -> str:
    """Return the IPv4 address of a name, which MXNet needs."""
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
        reason = f"cannot resolve the host {host!r}: {error}; give a name or an address, and nothing else"
    try:
        if socket.getaddrinfo(host.strip("[]"), None, socket.AF_INET6):
            reason = f"{host!r} is an IPv6 address or has no other one; MXNet needs one of IPv4, such as 10.1.1.34"
    except (OSError, UnicodeError):
        pass
    raise EnvironmentProblemError(f"{variable}: {reason}")


def _check_local_address(environment: MutableMapping[str, str]) -> None:
    """Check the address and the port that this process announces to the others; resolve a name.

    If they are not this machine's, or in use, MXNet would fail much later.
    """
    address, interface = environment.get("DMLC_NODE_HOST", "").strip(), environment.get("DMLC_INTERFACE", "")
    if address:
        address = environment["DMLC_NODE_HOST"] = _ipv4("DMLC_NODE_HOST", address)
        scheduler, kind = environment["DMLC_PS_ROOT_URI"], ipaddress.ip_address(address)
        if (
            not is_local_address(address)
            or kind.is_unspecified
            or (kind.is_loopback and not is_local_address(scheduler))
        ):
            raise EnvironmentProblemError(
                f"DMLC_NODE_HOST is {address!r}, which is not an address of this machine at which the scheduler at "
                f"{scheduler} can reach it; it should be the one under which the others do, for instance 10.1.1.33"
            )
    interfaces = [name for _, name in socket.if_nameindex()]
    if not address and interface and interface not in interfaces:
        raise EnvironmentProblemError(
            f"DMLC_INTERFACE is {interface!r}, but this machine's network interfaces are {', '.join(interfaces)}"
        )
    if environment.get("PORT") and environment.get("DMLC_ROLE") != "scheduler":
        port = _number(environment, "PORT", "where this process listens; without it, it chooses a free port", 65535)
        if port in _free_ports:
            return
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
                _free_ports.add(port)
            except OSError as error:
                raise EnvironmentProblemError(
                    f"PORT is {port}, where this process is to listen, but it cannot ({error.strerror}); unset PORT, "
                    "and it chooses a free port"
                ) from None


def is_local_address(address: str) -> bool:
    """Return whether a name or address is this machine's, so that a socket can be bound to it."""
    try:
        candidates = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, socket_address in candidates:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(socket_address)
        except OSError:
            return False
    return True


def _required(environment: MutableMapping[str, str], name: str, meaning: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise EnvironmentProblemError(f"{name} is not set: it is {meaning}")
    return value


def _number(environment: MutableMapping[str, str], name: str, meaning: str, maximum: int = 100_000) -> int:
    text = _required(environment, name, meaning)
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= maximum:
        raise EnvironmentProblemError(f"{name} is {text!r}, but should be a whole number of 1 to {maximum}: {meaning}")
    return int(text)
