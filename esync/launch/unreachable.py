"""Processes whose hosts do not answer: when and where to start them again, when to give up."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from .. import config
from ..runtime.watchdog import WatchedWait
from .processes import Process
from .spec import LaunchPlan, ProcessSpec


@dataclass
class UnreachableProcess:
    """A process that has lost its connection, and has not joined again.

    Attributes:
        spec: what the last attempt has started, or the next one will.
        wait: the wait since its connection was lost.
        pause: seconds to wait after the next attempt that fails.
        due: when to make the next attempt (time.monotonic); infinite while one is under way.
        last_line: last line of output of the last attempt that failed.
        host_answers: whether the host has answered the attempt that is under way.
    """

    spec: ProcessSpec
    wait: WatchedWait
    pause: float
    due: float
    last_line: str = ""
    host_answers: bool = False


class UnreachableProcesses:
    """The processes that are unreachable, and the spare hosts that may take them.

    A process counts as unreachable from the loss of its connection until it has joined again. It is
    started again on the host that it ran on, then on the spare hosts and its own by turns, with
    pauses that double.

    Args:
        plan: the job. Each of its spare hosts takes the workers of one host that does not answer.
        limit: seconds after which an unreachable process is given up.

    Attributes:
        lost_hosts: hosts that the job goes on without.
    """

    def __init__(self, plan: LaunchPlan, limit: float) -> None:
        self._limit = limit
        self._original = {spec.name: spec for spec in plan.processes}
        self._spares = plan.spares
        self._taken: dict[str, str] = {}  # spare host → the host whose workers it has, or tries to have
        self._reached: set[str] = set()  # spare hosts that have answered
        self._processes: dict[str, UnreachableProcess] = {}
        self.lost_hosts: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._processes

    @property
    def workers(self) -> list[str]:
        """The names of the unreachable workers."""
        return [name for name in self._processes if self._original[name].role == "worker"]

    def record(self, process: Process, replacement: Callable[[Process, ProcessSpec], ProcessSpec]) -> bool:
        """Plan the next attempt for a process.

        It has lost its connection, or its last attempt has failed.

        Args:
            process: the process that has ended.
            replacement: returns what to start in its place, given the process and how the chosen
                host starts it.

        Returns:
            False where there is no time left for another attempt.
        """
        now, name = time.monotonic(), process.spec.name
        first_pause, longest_pause = config.LAUNCH_RETRY
        if process.arrived:
            self._reached.add(process.spec.host.name)
        unreachable = self._processes.get(name)
        if unreachable is None:
            spec = replacement(process, process.spec)
            self._processes[name] = UnreachableProcess(spec, WatchedWait("", self._limit), first_pause, due=now)
            return True
        unreachable.last_line = process.last_lines[-1] if process.last_lines else ""
        if unreachable.wait.lasted > self._limit:
            return False
        place = process.spec if process.arrived else self._next_place(process.spec)
        unreachable.spec, unreachable.host_answers = replacement(process, place), False
        unreachable.due = min(now + unreachable.pause, unreachable.wait.since + self._limit)
        unreachable.pause = min(2 * unreachable.pause, longest_pause)
        return True

    def due(self) -> list[ProcessSpec]:
        """Return the processes to start now."""
        now = time.monotonic()
        found = [process for process in self._processes.values() if process.due <= now]
        for each in found:
            each.due = math.inf
        return [each.spec for each in found]

    def host_answers(self, process: Process) -> None:
        """Note that the host of a restarted process has answered; the process has yet to join."""
        self._processes[process.spec.name].host_answers = True

    def rejoined(self, process: Process) -> float:
        """Note that a process has joined again; return for how many seconds it was unreachable."""
        host, original = process.spec.host.name, self._original[process.spec.name].host.name
        self._reached.add(host)
        if host != original:
            self.lost_hosts.add(original)
        return self._processes.pop(process.spec.name).wait.lasted

    def give_up(self, name: str) -> str:
        """Stop trying to reach a process; return why, in words that follow its name."""
        unreachable = self._processes.pop(name)
        self.lost_hosts |= {unreachable.spec.host.name, self._original[name].host.name}
        said = f"; ssh said last: {unreachable.last_line}" if unreachable.last_line else ""
        return (
            f"is lost: {_where(unreachable.spec)} has not answered for {unreachable.wait.lasted:.0f} s "
            f"(--wait-for-host){said}"
        )

    def give_up_all(self) -> list[str]:
        """Stop trying to reach all of them, since they are no longer needed.

        Returns the names of the workers.
        """
        workers = self.workers
        for name in list(self._processes):
            self.give_up(name)
        return workers

    def forget(self, name: str) -> None:
        """Stop trying to reach a process, if it is unreachable: it has ended for another reason."""
        self._processes.pop(name, None)

    def announcements(self) -> list[str]:
        """Return a sentence for each host that is waited for, when it is time to say so."""
        names: dict[str, list[str]] = {}
        for name, process in self._processes.items():
            if not process.host_answers:
                names.setdefault(_where(process.spec), []).append(name)
        found = []
        for where, there in names.items():
            first = self._processes[there[0]]
            first.wait.what, first.wait.hint = f"{where} to answer ({', '.join(there)})", first.last_line
            if first.wait.due(config.ANNOUNCE_AFTER):
                found.append(first.wait.announcement())
        return found

    def _next_place(self, spec: ProcessSpec) -> ProcessSpec:
        """Return where to start a process whose host has not answered.

        Its own host and the spare hosts have their turns.
        """
        original = self._original[spec.name]
        home = original.host.name
        if spec.host.name not in self._reached:
            self._taken.pop(spec.host.name, None)  # that spare host does not answer, either: others may try it
        free = [on for name, on in self._spares.items() if self._taken.get(name, home) == home]
        places = [original, *(on[original.name] for on in free if original.name in on)]
        here = [place.host.name for place in places].index(spec.host.name)
        place = places[(here + 1) % len(places)]
        if place is not original:
            self._taken[place.host.name] = home
        return place


def _where(spec: ProcessSpec) -> str:
    return f"{spec.host.name} ({spec.host.address})"
