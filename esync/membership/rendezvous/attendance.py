"""Attendance: which processes of a cluster are missing, in words.

The scheduler knows the registered processes. It describes what the cluster waits for, and sends the
description to every process on request.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from ... import config
from ...runtime.environment import PLACES_VARIABLE, Cluster, EnvironmentProblemError
from ...runtime.errors import enumeration
from ...runtime.watchdog import WatchedWait
from .messages import SERVER, WORKER, Node

log = logging.getLogger(__name__)

#: Words for the roles of ps-lite's messages.
ROLES = {SERVER: "server", WORKER: "worker"}
#: Largest number of names in a sentence; further ones are counted.
LISTED = 8


class Places(NamedTuple):
    """Where `esync launch` starts the processes; both are empty for processes started by hand.

    Attributes:
        workers: host and device of each worker, by rank.
        servers: address and name of each server's host.
    """

    workers: Sequence[str] = ()
    servers: Sequence[Sequence[str]] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Places":
        """Read ESYNC_PLACES."""
        text = environment.get(PLACES_VARIABLE)
        try:
            return cls(**json.loads(text)) if text else cls()
        except (TypeError, ValueError):
            raise EnvironmentProblemError(f"{PLACES_VARIABLE} is {text!r}, which esync launch would not set") from None

    def absent_servers(self, present: Iterable[Node]) -> list[str]:
        """Return the hosts of the servers that have not registered."""
        absent = list(self.servers)
        for node in present:
            for address in absent:
                if address[0] == node.host:
                    absent.remove(address)
                    break
        return [f"on {name}" for _, name in absent]


@dataclass(frozen=True)
class Attendance:
    """The scheduler's answer to the question which processes are missing.

    Attributes:
        servers: the scheduler's DMLC_NUM_SERVER.
        workers: the scheduler's DMLC_NUM_WORKER.
        begun: whether the run has begun.
        missing: missing processes, in words that follow "waiting for"; "" for none.
        advice: remedy, in words.
    """

    servers: int
    workers: int
    begun: bool = False
    missing: str = ""
    advice: str = ""

    def encode(self) -> str:
        """Return it as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Attendance | None":
        """Parse a text of `encode`; return None if it is invalid."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            return None

    def contradiction(self, cluster: Cluster) -> str:
        """Return an error if this process's numbers of processes differ from the scheduler's, otherwise ""."""
        numbers = (
            ("DMLC_NUM_SERVER", cluster.servers, self.servers),
            ("DMLC_NUM_WORKER", cluster.workers, self.workers),
        )
        for name, number, schedulers in numbers:
            if number != schedulers:
                return (
                    f"{name} is {number}, but {schedulers} where {cluster.scheduler} was started: all "
                    "processes of a cluster need the same number; correct it, and start this process again"
                )
        return ""


class AttendanceLog:
    """Logs the processes for which a cluster waits, every ten seconds."""

    def __init__(self) -> None:
        self._wait: WatchedWait | None = None

    def update(self, attendance: Attendance | None) -> None:
        """Update the missing processes; None if they are unknown, or not to be logged."""
        if attendance is None or not attendance.missing:
            self._wait = None
            return
        self._wait = self._wait or WatchedWait("", math.inf)
        self._wait.what, self._wait.hint = attendance.missing, attendance.advice
        if self._wait.due(config.ANNOUNCE_AFTER):
            log.warning(self._wait.announcement())


def name_of(node: Node) -> str:
    """Return the role, number and address of a member, such as "worker 1 at 10.1.1.36:41233"."""
    return f"{ROLES[node.role]} {(node.id - 8) // 2} at {node.host}:{node.port}"


def missing_of(role: int, missing: int, expected: int, names: Sequence[str]) -> str:
    """Describe the missing processes of a role.

    Args:
        role: SERVER or WORKER.
        missing: number of missing processes.
        expected: number of processes in the cluster.
        names: rank and host of each missing one; empty if unknown.
    """
    text = f"{missing} of {expected} {ROLES[role]}{'s' if expected > 1 else ''}"
    return f"{text}: {enumeration(names, LISTED)}" if names else text


def how_to_start(me: Node, servers: int, workers: int, roles: Iterable[int], present: Sequence[Node]) -> str:
    """Return how processes of these roles are started by hand, and which have registered.

    Args:
        me: the scheduler.
        servers: DMLC_NUM_SERVER.
        workers: DMLC_NUM_WORKER.
        roles: SERVER, WORKER or both.
        present: the registered processes.
    """
    programs = {SERVER: "python -m esync.server", WORKER: "python -m esync.worker … or your own program"}
    names = [f"the {ROLES[node.role]} at {node.host}:{node.port}" for node in present]
    return (
        f"start what is missing with DMLC_PS_ROOT_URI={me.host} DMLC_PS_ROOT_PORT={me.port} DMLC_NUM_SERVER={servers} "
        f"DMLC_NUM_WORKER={workers} {', and '.join(programs[role] for role in sorted(set(roles)))}, unless it runs and "
        "cannot reach that address (firewall, DMLC_INTERFACE or DMLC_NODE_HOST); here: "
        + (enumeration(names, LISTED) or "nobody")
    )
