"""Attendance: which processes of a cluster are missing, in the words that all of them use.

The scheduler knows who has registered. It words what the cluster waits for, and tells every process
that asks.
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
#: Names that a sentence lists; the others are counted.
LISTED = 8


class Places(NamedTuple):
    """Where `esync launch` starts the processes; both are empty where they are started by hand.

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
        """Return the hosts of the servers that have not come."""
        absent = list(self.servers)
        for node in present:
            for place in absent:
                if place[0] == node.host:
                    absent.remove(place)
                    break
        return [f"on {name}" for _, name in absent]


@dataclass(frozen=True)
class Attendance:
    """The scheduler's answer to processes that ask who is missing.

    Attributes:
        servers: DMLC_NUM_SERVER, as the scheduler has it.
        workers: DMLC_NUM_WORKER, likewise.
        begun: whether the run has begun.
        missing: what is waited for, in words that follow "waiting for"; "" where nobody is missing.
        advice: what to do about it.
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
        """Read a text of `encode`; None where it is something else."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            return None

    def contradiction(self, cluster: Cluster) -> str:
        """Return which number of this process is not the scheduler's, as an error; "" if none is."""
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
    """Logs for whom a cluster waits, each time that it has waited for another ten seconds."""

    def __init__(self) -> None:
        self._wait: WatchedWait | None = None

    def update(self, attendance: Attendance | None) -> None:
        """Take who is missing now; None where nobody knows, or where it should not be logged."""
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
    """Return how many processes of a role are missing, and which.

    Args:
        role: SERVER or WORKER.
        missing: number of those that are.
        expected: number of those that belong to the cluster.
        names: rank and place of each; empty where they are not known.
    """
    text = f"{missing} of {expected} {ROLES[role]}{'s' if expected > 1 else ''}"
    return f"{text}: {enumeration(names, LISTED)}" if names else text


def how_to_start(me: Node, servers: int, workers: int, roles: Iterable[int], present: Sequence[Node]) -> str:
    """Return how processes of these roles are started by hand, and who is there.

    Args:
        me: the scheduler.
        servers: DMLC_NUM_SERVER.
        workers: DMLC_NUM_WORKER.
        roles: SERVER, WORKER or both.
        present: the processes that have come.
    """
    programs = {SERVER: "python -m esync.server", WORKER: "python -m esync.worker … or your own program"}
    here = [f"the {ROLES[node.role]} at {node.host}:{node.port}" for node in present]
    return (
        f"start what is missing with DMLC_PS_ROOT_URI={me.host} DMLC_PS_ROOT_PORT={me.port} DMLC_NUM_SERVER={servers} "
        f"DMLC_NUM_WORKER={workers} {', and '.join(programs[role] for role in sorted(set(roles)))}, unless it runs and "
        "cannot reach that address (firewall, DMLC_INTERFACE or DMLC_NODE_HOST); here: "
        + (enumeration(here, LISTED) or "nobody")
    )
