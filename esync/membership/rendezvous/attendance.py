"""Attendance: who of a cluster is missing, in the words that all of its processes use.

The scheduler knows who has registered. It puts what is waited for into words, and tells every
process that asks.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from ...runtime.environment import PLACES_VARIABLE, Cluster, EnvironmentProblemError
from .messages import SERVER, WORKER, Node

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

    def server(self, there: Iterable[Node]) -> list[str]:
        """Return the hosts of the servers that are not there."""
        left = [tuple(place) for place in self.servers]
        for node in there:
            at = next((place for place in left if place[0] == node.host), None)
            if at is not None:
                left.remove(at)
        return [f"on {name}" for _, name in left]


@dataclass(frozen=True)
class Attendance:
    """What the scheduler tells whoever asks.

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
        for name, here, there in numbers:
            if here != there:
                return (
                    f"{name} is {here}, but {there} where the scheduler at {cluster.host}:{cluster.port} was started: "
                    "all processes of a cluster need the same number; correct it, and start this process again"
                )
        return ""


def name_of(node: Node) -> str:
    """Return role, slot or rank and address of a member, such as "worker 1 at 10.1.1.36:41233"."""
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
    if not names:
        return text
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{text}: {', '.join(names[:LISTED])}{more}"


def how_to_start(me: Node, servers: int, workers: int, roles: Iterable[int], there: Sequence[Node]) -> str:
    """Return how processes of these roles are started by hand, and who is there.

    Args:
        me: the scheduler.
        servers: DMLC_NUM_SERVER.
        workers: DMLC_NUM_WORKER.
        roles: SERVER, WORKER or both.
        there: the processes that have come.
    """
    programs = {SERVER: "python -m esync.server", WORKER: "python -m esync.worker … or your own program"}
    here = [f"the {ROLES[node.role]} at {node.host}:{node.port}" for node in there]
    more = f" and {len(here) - LISTED} more" if len(here) > LISTED else ""
    return (
        f"start what is missing with DMLC_PS_ROOT_URI={me.host} DMLC_PS_ROOT_PORT={me.port} DMLC_NUM_SERVER={servers} "
        f"DMLC_NUM_WORKER={workers} {', and '.join(programs[role] for role in sorted(set(roles)))}, unless it runs and "
        "cannot reach that address (firewall, DMLC_INTERFACE or DMLC_NODE_HOST); here: "
        + (f"{', '.join(here[:LISTED])}{more}" if here else "nobody")
    )
