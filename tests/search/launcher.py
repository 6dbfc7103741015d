"""What the launcher does in a job: it replaces workers that have died, or ends the job."""

import random
from collections import Counter, deque
from collections.abc import Callable, Set

from .processes import Cluster, JobOverError, Machines, Process
from .schedule import Schedule

#: Seconds from a process' end until another one in its place runs.
STARTS = (0.0, 0.0, 0.5, 2.0, 4.0)


class Launcher:
    """The launcher of one job.

    Args:
        schedule: of the job.
        cluster: its time.
        machines: its processes.
        chance: draws how long a start takes.
        left: servers that have ended because the run is over.
        start: starts a process: number of the worker, its slot or None, seconds until it runs.
        forget: is called when a worker is replaced that had values which its replacement does not
            have.

    Attributes:
        ended: workers' processes that have ended, and servers that have died, by their number; to
            be dealt with.
        restarts: worker → how often it has been replaced.
        over: whether no process is left.
    """

    def __init__(
        self,
        schedule: Schedule,
        cluster: Cluster,
        machines: Machines,
        chance: random.Random,
        left: Set[int],
        start: Callable[[int, int | None, float], None],
        forget: Callable[[], None],
    ) -> None:
        self._schedule, self._cluster, self._machines, self._chance = schedule, cluster, machines, chance
        self._left, self._start, self._forget = left, start, forget
        self.ended: deque[Process | int] = deque()
        self.restarts: Counter[int] = Counter()
        self.over = False
        self._spare = schedule.surplus

    def may_replace(self, number: int) -> bool:
        """Return whether a worker would be replaced."""
        return self.restarts[number] < self._schedule.restarts

    def run(self) -> None:
        """Deal with every process that ends, until none is left."""
        while True:
            self._cluster.wait(lambda: bool(self.ended) or not self._machines.running)
            if not self.ended:
                break
            ended = self.ended.popleft()
            if isinstance(ended, int):
                raise JobOverError(f"the launcher ends the job: server {ended} has died")
            self._deal_with(ended)
        self.over = True

    def _deal_with(self, process: Process) -> None:
        number, schedule = process.number, self._schedule
        if process.code == 0 or self._left:
            return  # in the end only worker 0 would have had something to do
        if not process.joined and not self.restarts[number]:
            self._spare -= 1
            if self._spare >= 0:
                return  # another one has been started already
            raise JobOverError(f"the launcher ends the job: worker {number} has ended before it had begun")
        if not self.may_replace(number):
            if not schedule.settings.elastic or not self._machines.running:
                raise JobOverError(f"the launcher ends the job: worker {number} may not be replaced any more")
            return  # the others go on without it
        self.restarts[number] += 1
        if schedule.settings.forgetful:
            self._forget()
        self._start(number, None if schedule.surplus else process.slot, self._chance.choice(STARTS))
