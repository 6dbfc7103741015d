"""Machines, the processes of a job on them, and how they die."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from esync.checkpoints.store import CheckpointStore
from esync.membership.rendezvous import messages

from ..exchange.store_checks import BUCKET
from ..support.memory_cluster import MemoryCluster, MemoryStore
from .schedule import DISK, HANG, MACHINE, PART, POWER, STEP, WORKER, Death

if TYPE_CHECKING:
    from .world import World

#: Owners of tasks that are no worker's, and where what goes to no server goes.
NOBODY, NO_SERVER = 0, -1
#: Steps after which a job counts as one that never ends.
ENDLESS = 40_000
#: With a lease: one in how many steps lets time pass although something could happen.
HASTE = 60
#: Steps that something is slow, at most.
SLOW = 150
#: How many leases somebody hangs.
HANGS = (1.5, 1.5, 3.0)


class JobOverError(Exception):
    """The job has ended before its time: the power went, or somebody has ended it."""


@dataclass
class Process:
    """A worker process, or one that was.

    Attributes:
        number: of the worker, as the launcher counts them.
        nonce: its own number.
        slot: which the launcher has told it; None: it has the one that the scheduler gives it.
        node: what the scheduler knows of it.
        joined: whether it has had the common model.
        code: exit code; None while it runs; negative where it was killed.
        hangs: PART: its disk is to be slow now; STEP: it is to hang when it computes; "": neither.
    """

    number: int
    nonce: int
    slot: int | None
    node: messages.Node
    joined: bool = False
    code: int | None = None
    hangs: str = ""


class Cluster(MemoryCluster):
    """Servers and workers of one job.

    Args:
        world: what it is part of.
        meet: lets a process, given its own number, come to the barrier of all workers, and wait
            until it opens.
    """

    def __init__(self, world: "World", meet: Callable[[int], None]) -> None:
        schedule = world.schedule
        elastic = schedule.settings.elastic
        super().__init__(
            schedule.workers,
            world.choose,
            schedule.servers,
            bucket_elements=BUCKET,
            lease=schedule.lease,
            maximum=ENDLESS,
            haste=HASTE if elastic else 0,
            hosts=schedule.hosts,
        )
        self._meet = meet
        self._slow: Callable[[int, int], bool] | None = None  # nonce, key → whether that is slow at present
        self._until = 0  # which step

    def prompt(self, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """See `MemoryCluster.prompt`.

        For some steps, what a worker, a server or a key has in transit is delayed.
        """
        if self.steps >= self._until:
            self._until = self.steps + 1 + self._choose(SLOW)
            what = self._choose(6)
            nonce, key = places[self._choose(len(places))] if places else (NOBODY, 0)
            shard = key % len(self.nodes)
            self._slow = {
                1: lambda one, other: one == nonce,
                2: lambda one, other: other >= 0 and other % len(self.nodes) == shard,
                3: lambda one, other: (one, other) == (nonce, key),
            }.get(what)
        slow = self._slow
        return places if slow is None else [place for place in places if not slow(*place)]

    @property
    def running(self) -> Any:
        """The task that runs, if any."""
        return self._running

    def idle(self, nonce: int) -> bool:
        """Whether a process has nothing to do, and all that it has sent and asked for is there."""
        tasks = [task for task in self._tasks if task.owner == nonce]
        return not self.under_way(nonce) and not any(self.now >= task.wakes or task.ready() for task in tasks)

    def meet(self, store: MemoryStore, number: int) -> None:
        """See `MemoryCluster.meet`: ps-lite's barrier of all workers."""
        self._meet(store.nonce)


class Machines:
    """The processes of one job, on their machines.

    Args:
        world: what the job is part of.
        cluster: its servers and workers.
        ended: is told of every worker that has ended, and of every server that has died, by its
            number.

    Attributes:
        processes: of workers, in the order in which they were started.
    """

    def __init__(self, world: "World", cluster: Cluster, ended: Callable[[Process | int], None]) -> None:
        self._world, self._schedule, self._cluster, self._ended = world, world.schedule, cluster, ended
        self.processes: list[Process] = []

    def add(self, number: int, slot: int | None) -> Process:
        """Add a process for a worker, which does nothing yet."""
        count = len(self.processes) + 1
        nonce = self._world.processes + count  # a job's number is one of them: no two are the same
        process = Process(number, nonce, slot, messages.Node(messages.WORKER, self.host(number), 1000 + count))
        self.processes.append(process)
        return process

    @property
    def running(self) -> list[Process]:
        """Those that have not ended."""
        return [process for process in self.processes if process.code is None]

    def of(self, nonce: int) -> Process:
        """Return the process with that number of its own."""
        return self.processes[nonce - self._world.processes - 1]

    def host(self, number: int, server: bool = False) -> str:
        """Return the machine of a worker, or of a server."""
        net = int(server and self._schedule.dedicated)
        return f"10.0.{net}.{number % self._schedule.machines + 1}"

    def moment(self, moment: str, process: Process | None = None) -> None:
        """Note another moment of that kind, with the process concerned: one may have to die."""
        count = self._world.moments[moment]
        self._world.moments[moment] += 1
        for death in self._schedule.deaths:
            if (death.moment, death.step) == (moment, count):
                self._cluster.at(self._cluster.steps + 1, lambda death=death: self.strike(death, process))  # type: ignore[misc]

    def strike(self, death: Death, concerned: Process | None = None) -> None:
        """Have a process die or hang: the one concerned, or the one named by the death's number."""
        cluster = self._cluster
        cluster.history.append(f"--- {death}")
        if death.what in (POWER, DISK):
            self._world.disk.lose_power(self._world.chance.randrange)
            if death.what == DISK:
                CheckpointStore(self._world.folder, death.number).remove(lambda round_: True)
            raise JobOverError("the power is gone")
        if death.what == MACHINE:
            host = self.host(death.number) if concerned is None else concerned.node.host
            for process in [process for process in self.running if process.node.host == host]:
                self.kill(process)
            for shard in range(self._schedule.servers):
                if self.host(shard, True) == host and shard not in cluster.stopped:
                    cluster.stopped.add(shard)
                    self._ended(shard)
        for process in self.running:
            if process is not concerned and (concerned is not None or process.number != death.number):
                continue
            if death.what == WORKER:
                self.kill(process)
            elif death.what == HANG:
                process.hangs = PART if death.moment == PART else STEP

    def kill(self, process: Process) -> None:
        """Let a process die at once."""
        self._cluster.kill_process(process.nonce)
        self.end(process, -9)

    def hang(self, where: str) -> None:
        """Have the running process take longer than the lease, where it is to."""
        task = self._cluster.running
        process = self.of(task.owner)
        if process.hangs == where and not task.killed:
            process.hangs = ""
            if where == STEP:
                self._cluster.suspended.add(process.nonce)
            self.sleep(self._world.chance.choice(HANGS) * self._schedule.lease)
            self._cluster.suspended.discard(process.nonce)

    def end(self, process: Process, code: int) -> None:
        """Note that a process has ended."""
        process.code = code
        self._cluster.connected.pop(process.nonce, None)
        self._ended(process)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the running task."""
        if seconds:
            until = self._cluster.now + seconds
            self._cluster.wait(lambda: self._cluster.now >= until, until)
