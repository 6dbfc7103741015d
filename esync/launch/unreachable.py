"""Processes on hosts that do not answer: when and where to restart them, and when to give up."""

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
        spec: the process started by the current attempt, or to be started by the next one.
        wait: the wait since its connection was lost.
        pause: seconds to wait after the next failed attempt.
        due: time of the next attempt (time.monotonic); infinite during an attempt.
        last_line: last line of output of the last failed attempt.
        host_answers: whether the host has answered the current attempt.
    """

    spec: ProcessSpec
    wait: WatchedWait
    pause: float
    due: float
    last_line: str = ""
    host_answers: bool = False


class UnreachableProcesses:
    """The unreachable processes of a job, and the spare hosts that may take them over.

    A process is unreachable from the loss of its connection until it has joined again. It is
    restarted on the host on which it ran, then on the spare hosts and its own in turn, with
    exponentially growing pauses.

    Args:
        plan: the job. Each of its spare hosts takes over the workers of one host.
        limit: seconds after which an unreachable process is given up.

    Attributes:
        lost_hosts: hosts that the job goes on without.
    """

    def __init__(self, plan: LaunchPlan, limit: float) -> None:
        self._limit = limit
        self._original = {spec.name: spec for spec in plan.processes}
        self._spares = plan.spares
        self._taken: dict[str, str] = {}  # spare host → the host whose workers it takes over
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
        """Schedule the next attempt for a process that has lost its connection, or whose attempt has failed.

        Args:
            process: the process that has ended.
            replacement: returns the process to start, given the one that has ended and its
                specification on the chosen host.

        Returns:
            False if there is no time left for another attempt.
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
        new_spec = process.spec if process.arrived else self._next_spec(process.spec)
        unreachable.spec, unreachable.host_answers = replacement(process, new_spec), False
        unreachable.due = min(now + unreachable.pause, unreachable.wait.since + self._limit)
        unreachable.pause = min(2 * unreachable.pause, longest_pause)
        return True

    def due(self) -> list[ProcessSpec]:
        """Return the processes to start now."""
        now = time.monotonic()
        retried = [process for process in self._processes.values() if process.due <= now]
        for process in retried:
            process.due = math.inf
        return [process.spec for process in retried]

    def host_answers(self, process: Process) -> None:
        """Record that the host of a restarted process has answered; the process has not joined yet."""
        self._processes[process.spec.name].host_answers = True

    def rejoined(self, process: Process) -> float:
        """Record that a process has joined again; return for how many seconds it was unreachable."""
        host, original = process.spec.host.name, self._original[process.spec.name].host.name
        self._reached.add(host)
        if host != original:
            self.lost_hosts.add(original)
        return self._processes.pop(process.spec.name).wait.lasted

    def give_up(self, name: str) -> str:
        """Stop trying to reach a process; return the reason as a clause that follows its name."""
        unreachable = self._processes.pop(name)
        self.lost_hosts |= {unreachable.spec.host.name, self._original[name].host.name}
        hint = f"; ssh said last: {unreachable.last_line}" if unreachable.last_line else ""
        return (
            f"is lost: {_where(unreachable.spec)} has not answered for {unreachable.wait.lasted:.0f} s "
            f"(--wait-for-host){hint}"
        )

    def give_up_all(self) -> list[str]:
        """Stop trying to reach any process; return the names of the unreachable workers."""
        workers = self.workers
        for name in list(self._processes):
            self.give_up(name)
        return workers

    def forget(self, name: str) -> None:
        """Stop trying to reach a process that has ended for another reason, if it is unreachable."""
        self._processes.pop(name, None)

    def announcements(self) -> list[str]:
        """Return a sentence about each unreachable host whose announcement is due."""
        names: dict[str, list[str]] = {}
        for name, process in self._processes.items():
            if not process.host_answers:
                names.setdefault(_where(process.spec), []).append(name)
        sentences = []
        for host, waiting in names.items():
            first = self._processes[waiting[0]]
            first.wait.what, first.wait.hint = f"{host} to answer ({', '.join(waiting)})", first.last_line
            if first.wait.due(config.ANNOUNCE_AFTER):
                sentences.append(first.wait.announcement())
        return sentences

    def _next_spec(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the next process to start after a host has not answered.

        Its own host and the spare hosts are tried in turn.
        """
        original = self._original[spec.name]
        home = original.host.name
        if spec.host.name not in self._reached:
            self._taken.pop(spec.host.name, None)  # this spare host does not answer, either; release it
        free = [specs for name, specs in self._spares.items() if self._taken.get(name, home) == home]
        candidates = [original, *(specs[original.name] for specs in free if original.name in specs)]
        index = [candidate.host.name for candidate in candidates].index(spec.host.name)
        chosen = candidates[(index + 1) % len(candidates)]
        if chosen is not original:
            self._taken[chosen.host.name] = home
        return chosen


def _where(spec: ProcessSpec) -> str:
    return f"{spec.host.name} ({spec.host.address})"
