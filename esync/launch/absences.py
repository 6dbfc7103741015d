"""Hosts that do not answer: when the processes that are missing are tried again, where, and when they are given up."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from .. import config
from ..watchdog import Wait
from .processes import Process
from .spec import Plan, ProcessSpec


@dataclass
class Absence:
    """A process that has lost its connection, and is not back yet.

    Attributes:
        spec: what is started next, or has been started.
        wait: since the connection was lost.
        pause: seconds before the try after the next one.
        due: when to start it (time.monotonic); infinite while it has been.
        said: the last line of a try that has failed.
        answering: whether its host has answered the last try.
    """

    spec: ProcessSpec
    wait: Wait
    pause: float
    due: float
    said: str = ""
    answering: bool = False


class Absences:
    """The processes that are missing, and the spare hosts that may take them.

    A process is missing from the loss of its connection until it has joined again. It is tried on the host that it ran
    on, then on the others that may have it by turns, with pauses that double.

    Args:
        plan: the job; its spare hosts are for the workers of hosts that do not answer, each for those of one host.
        limit: seconds before a process that is missing is given up.

    Attributes:
        lost_hosts: hosts that the job goes on without.
    """

    def __init__(self, plan: Plan, limit: float) -> None:
        self._limit = limit
        self._own = {spec.name: spec for spec in plan.processes}
        self._spares = plan.spares
        self._taken: dict[str, str] = {}  # spare host → the host whose workers it has, or tries to have
        self._reached: set[str] = set()  # spare hosts that have answered
        self._missing: dict[str, Absence] = {}
        self.lost_hosts: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._missing

    @property
    def workers(self) -> list[str]:
        """The workers among those that are missing."""
        return [name for name in self._missing if self._own[name].role == "worker"]

    def note(self, process: Process, again: Callable[[Process, ProcessSpec], ProcessSpec]) -> bool:
        """A process has lost its connection, or a try has failed; False where its time is over.

        Args:
            process: it has ended.
            again: what is to be started in its place, given where.
        """
        now, name = time.monotonic(), process.spec.name
        if process.arrived:
            self._reached.add(process.spec.host.name)
        absence = self._missing.get(name)
        if absence is None:
            first, _ = config.LAUNCH_RETRY
            wait = Wait("", self._limit)
            self._missing[name] = Absence(again(process, process.spec), wait, first, now)
            return True
        absence.said = process.last_lines[-1] if process.last_lines else ""
        if absence.wait.lasted > self._limit:
            return False
        place = process.spec if process.arrived else self._next_place(process.spec)
        absence.spec, absence.answering = again(process, place), False
        absence.due = min(now + absence.pause, absence.wait.since + self._limit)
        absence.pause = min(2 * absence.pause, config.LAUNCH_RETRY[1])
        return True

    def due(self) -> list[ProcessSpec]:
        """What is to be started now."""
        now = time.monotonic()
        found = [absence for absence in self._missing.values() if absence.due <= now]
        for absence in found:
            absence.due = math.inf
        return [absence.spec for absence in found]

    def answering(self, process: Process) -> None:
        """The host of a process that has been started again has answered; it is still to join."""
        self._missing[process.spec.name].answering = True

    def back(self, process: Process) -> float:
        """A process is there again; the seconds that it was missing."""
        host, own = process.spec.host.name, self._own[process.spec.name].host.name
        self._reached.add(host)
        if host != own:
            self.lost_hosts.add(own)
        return self._missing.pop(process.spec.name).wait.lasted

    def give_up(self, name: str) -> str:
        """Wait for a process no more; why, in words that follow its name."""
        absence = self._missing.pop(name)
        self.lost_hosts |= {absence.spec.host.name, self._own[name].host.name}
        return (
            f"is lost: {_where(absence.spec)} has not answered for {absence.wait.lasted:.0f} s (--wait-for-host); "
            f"ssh said last: {absence.said}"
        )

    def forget(self, name: str) -> None:
        """Wait for a process no more, if it is missing: it has ended for another reason."""
        self._missing.pop(name, None)

    def abandon(self) -> list[str]:
        """Nobody needs those that are missing any more; the workers among them."""
        workers = self.workers
        for name in list(self._missing):
            self.give_up(name)
        return workers

    def announcements(self) -> list[str]:
        """Who is waited for, a sentence for each host where it is time to say so."""
        names: dict[str, list[str]] = {}
        for name, absence in self._missing.items():
            if not absence.answering:
                names.setdefault(_where(absence.spec), []).append(name)
        found = []
        for where, there in names.items():
            absence = self._missing[there[0]]
            absence.wait.what, absence.wait.hint = f"{where} to answer ({', '.join(there)})", absence.said
            if absence.wait.due(config.ANNOUNCE_AFTER):
                found.append(absence.wait.announcement())
        return found

    def _next_place(self, spec: ProcessSpec) -> ProcessSpec:
        """Where to try next what has not arrived: on its own host and the spare hosts by turns."""
        own = self._own[spec.name]
        home = own.host.name
        if spec.host.name not in self._reached:
            self._taken.pop(spec.host.name, None)  # that spare host does not answer, either: others may try it
        free = [on for name, on in self._spares.items() if self._taken.get(name, home) == home]
        places = [own, *(on[own.name] for on in free if own.name in on)]
        here = [place.host.name for place in places].index(spec.host.name)
        place = places[(here + 1) % len(places)]
        if place is not own:
            self._taken[place.host.name] = home
        return place


def _where(spec: ProcessSpec) -> str:
    return f"{spec.host.name} ({spec.host.address})"
