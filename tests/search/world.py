"""Runs a schedule with machines, workers, servers, a scheduler, a launcher and a disk, and checks the invariants."""

import math
import os
import random
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from esync import config
from esync.checkpoint.checkpoints import _offer
from esync.checkpoint.lock import RankLock
from esync.checkpoint.store import Part, Store
from esync.exchange import WEIGHTS, JobAbortedError, SlotLostError
from esync.exchange.base import Result
from esync.exchange.keystores.memory import Flight, MemoryCluster, MemoryStore, Node
from esync.exchange.protocol import wire
from esync.exchange.protocol.ledger import Ledger
from esync.exchange.protocol.resumption import Offer, Offers, choose
from esync.files import write_whole
from esync.rendezvous import messages
from esync.rendezvous.messages import Message
from esync.rendezvous.roster import Roster, Sending, scheduler_node, worker_id

from ..exchange.store_checks import BUCKET
from ..exchange.vectors import Held, gradient
from ..volatile_disk import VolatileDisk
from .schedule import COMMIT, DISK, END, HANG, JOIN, MACHINE, PART, POWER, STEP, WORKER, Death, Schedule
from .worker import RATE, Worker

#: Where the scheduler is, and what stands for its connections; no server has that number.
SCHEDULER = scheduler_node("10.0.0.1", 9000)
NO_SERVER = -1
#: A folder in memory: files there need no disk.
MEMORY = "/dev/shm"
#: Owners of tasks that are no worker's.
NOBODY = 0
#: Group of ps-lite's barrier of all, and of all workers.
EVERYBODY, WORKERS = 7, 4
#: Jobs in one schedule, each going on from the one before; more than there are deaths.
JOBS = 12
#: Steps after which a job counts as one that never ends.
ENDLESS = 40_000
#: With a lease: one in how many steps lets time pass although something could happen.
HASTE = 60
#: Steps that something is slow, at most.
SLOW = 150
#: How many leases somebody hangs, and seconds from a worker's end until another one in its place runs.
HANGS, STARTS = (1.5, 1.5, 3.0), (0.0, 0.0, 0.5, 2.0, 4.0)
#: Seconds from the moment when a server tells that it leaves until it is gone.
FAREWELL = 1.0


class InvariantError(AssertionError):
    """Something has happened that must not happen."""


class JobOverError(Exception):
    """The job has ended before its time: the power went, or the launcher has ended it."""


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
        silent: whether it hangs, and nobody speaks for it.
    """

    number: int
    nonce: int
    slot: int | None
    node: messages.Node
    joined: bool = False
    code: int | None = None
    hangs: str = ""
    silent: bool = False


@dataclass
class Observed:
    """What was observed in the jobs of a schedule.

    Attributes:
        models: round → the model after it; None where that need not be the same in every job.
        parts: round and job number of a checkpoint → ranks whose parts have been written.
        needs: likewise → ranks whose parts it needs.
        newest: round of the newest whole checkpoint; -1: there was none yet.
    """

    models: dict[int, bytes] | None = field(default_factory=dict)
    parts: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    needs: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    newest: int = -1


class World:
    """All jobs of one schedule, on one disk.

    Args:
        schedule: how the jobs are set up, and who dies when.

    Attributes:
        history: what has happened, in words.
        steps: number of steps of the jobs that are over.
        jobs: number of jobs.
        moments: number of moments of each kind so far; see `schedule`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.observed = schedule, Observed()
        self.chance = random.Random(f"{schedule.kind} {schedule.seed} order")
        self.history: list[str] = []
        self.steps = self.jobs = 0
        self.moments = Counter[str]()
        self.job: Job | None = None

    def run(self) -> None:
        """Run one job after the other, until one is finished or there is nothing to go on from.

        Raises:
            InvariantError: an invariant does not hold.
            DeadlockError: a job does not end.
        """
        place = tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None)
        with place as root:
            self.folder = Path(root, "checkpoints")
            self.folder.mkdir()
            with VolatileDisk(Path(root), self._disk_step) as self.disk:
                self._run()

    def _run(self) -> None:
        with (
            self.disk.attached(),
            _kept_books(),
            mock.patch.object(Store, "write", self._writing),
            mock.patch.object(Store, "keep", self._keeping),
            mock.patch.object(RankLock, "_taken", return_value=True),  # all processes are this one here
            mock.patch.object(os, "getpid", self._process_id),
        ):
            for self.jobs in range(1, JOBS + 1):
                self.job = job = Job(self)
                try:
                    over = job.run()
                finally:
                    self.history += job.cluster.history
                self.steps += job.cluster.steps + 1
                self.job = None
                self._check_checkpoints()
                if over or not self.schedule.every:
                    return
            raise InvariantError(f"no end after {JOBS} jobs")

    def choose(self, options: int) -> int:
        """Choose which of the things that can happen next does, as `MemoryCluster` asks."""
        job = self.job
        if job is not None and self.steps + job.cluster.steps >= self.schedule.calm:
            return 0
        return int(self.chance.random() * options)

    def _disk_step(self) -> None:
        if self.job is not None:
            self.job.disk_step()

    def _process_id(self) -> int:
        """Processes in memory have process ids of their own."""
        task = self.job.cluster.running if self.job is not None else None
        return task.owner if task is not None else NOBODY

    @property
    def _writing(self) -> Callable[..., Part]:
        """`Store.write`, which also tells the job of every part."""
        write = Store.write

        def writing(store: Store, round_: int, writers: Any, facts: Any) -> Part:
            part = write(store, round_, writers, facts)
            if self.job is not None:
                self.job.wrote(store.rank, round_, facts)
            return part

        return writing

    @property
    def _keeping(self) -> Callable[..., None]:
        """`Store.keep`, and a look at what is left."""
        keep = Store.keep

        def keeping(store: Store, count: int, whole: int) -> None:
            keep(store, count, whole)
            self._check_checkpoints()

        return keeping

    def _check_checkpoints(self) -> None:
        """Check that a job that began now would go on from the newest whole checkpoint."""
        observed, schedule = self.observed, self.schedule
        if observed.newest < 0:
            return
        found = {rank: Offers(True, offers_of(self.folder, rank)) for rank in range(schedule.workers)}
        try:
            at = choose(found)
        except ValueError as error:
            raise InvariantError(f"the checkpoint of round {observed.newest} was whole, and now: {error}") from error
        if at < observed.newest:
            raise InvariantError(
                f"the checkpoint of round {observed.newest} was whole, but the newest is of round {at}"
            )


def offers_of(folder: Path, rank: int) -> list[Offer]:
    """Return the parts that a worker would offer in its greeting."""
    return [_offer(part) for part in Store(folder, rank).parts()]


class Cluster(MemoryCluster):
    """Servers and workers of one job, whose barriers are the scheduler's."""

    def __init__(self, job: "Job", world: World) -> None:
        schedule = world.schedule
        elastic = schedule.settings.elastic
        super().__init__(
            schedule.workers,
            world.choose,
            schedule.servers,
            bucket_elements=BUCKET,
            lease=schedule.lease,
            most=ENDLESS,
            haste=HASTE if elastic else 0,
        )
        self._job = job
        self._slow: Callable[[int, int], bool] | None = None  # nonce, key → whether that is slow at present
        self._until = 0  # which step

    def prompt(self, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """See `MemoryCluster.prompt`: for some steps, what a worker, a server or a key has under way is delayed."""
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
        self._job.barrier(store.nonce, WORKERS)


class Job:
    """One job: from the start of its processes to the end of the last one.

    Args:
        world: what it is part of.
    """

    def __init__(self, world: World) -> None:
        self._world, self._schedule = world, world.schedule
        self.folder, self._observed = world.folder, world.observed
        self.cluster = Cluster(self, world)
        self._processes: list[Process] = []
        self._ended: deque[Process | int] = deque()  # workers, and servers by their number; the launcher is told
        self._restarts: Counter[int] = Counter()
        self._post: deque[tuple[Message, int]] = deque()  # for the scheduler, with the sender's id
        self._departed: deque[tuple[str, int]] = deque()
        self._gone: dict[tuple[str, int], float] = {}  # when nobody waits for it any more
        self._known: dict[tuple[str, int], Process] = {}
        self._opened: Counter[int] = Counter()  # process → barriers that have opened for it
        self._came: Counter[int] = Counter()
        self._roster = Roster(SCHEDULER, self._schedule.servers, self._schedule.workers)
        self._servers: dict[int, messages.Node] = {}
        self._left: set[int] = set()  # servers that have ended by themselves
        self._spare = self._schedule.surplus
        self._reached: dict[int, int] = {}  # slot → exchanges since the job began
        self._before: dict[int, int] = {}  # slot → exchanges before
        self._written = False  # whether worker 0 has written the final model
        self._torn: dict[tuple[int, int], int] = {}  # process and sequence of its commit → servers that have it
        self._over = False
        self._initial: Held | None = None
        self._models: dict[int, bytes] = {}
        self._unsure: dict[int, tuple[int, bytes]] = {}  # process → round and model, until it is heard to be a member
        self._elastic = self._schedule.settings.elastic
        if self._elastic:
            self._observed.models = None

    def run(self) -> bool:
        """Run the job to its end, and return whether the training is finished.

        Raises:
            InvariantError: an invariant does not hold.
            DeadlockError: the job does not end.
        """
        cluster, schedule = self.cluster, self._schedule
        for death in schedule.deaths:
            if death.moment == STEP:
                cluster.at(death.step - self._world.steps, lambda death=death: self._strike(death))  # type: ignore[misc]
        for shard in range(schedule.servers):
            cluster.spawn(f"server {shard}", NOBODY, lambda shard=shard: self._serve(shard), fatal=True)  # type: ignore[misc]
            _watch(cluster.nodes[shard], self)
        cluster.spawn("the scheduler", NOBODY, self._schedule_all, fatal=True)
        cluster.spawn("the launcher", NOBODY, self._launch, fatal=True)
        cluster.spawn("the servers", NOBODY, self._end_servers, fatal=True)
        for number in range(schedule.workers + schedule.surplus):
            self._start(number)
        try:
            cluster.run()
        except JobOverError as error:
            cluster.history.append(str(error))
            return False
        self._check_end()
        return True

    # --- what the workers tell, and ask -----------------------------------------------------------------------------

    def begins(self, worker: Worker, held: Held, exact: np.ndarray | None) -> None:
        """Note the model that worker 0 begins with; `exact` are the servers' weights where a checkpoint has others."""
        self._moment(JOIN)
        if worker.rank == 0 and not worker.exchange.replacement:
            self._initial = Held()
            for name, vector in held.vectors.items():
                self._initial.write(name, 0, vector)
            if exact is not None:
                self._initial.write(WEIGHTS, 0, exact)

    def joined(self, worker: Worker) -> None:
        """Note that a worker has the common model, and tell the scheduler."""
        process = self._process(worker.exchange.store.nonce)
        self._tell(process, Message(messages.BEGUN, (process.node,)))
        self.cluster.wait(lambda: self._roster.begun)
        process.joined, process.slot = True, worker.rank
        self._count(worker)

    def iteration(self, worker: Worker) -> None:
        """Let a worker hang here, between two exchanges, where it is to."""
        self._hang(STEP)

    def exchanged(self, worker: Worker, result: Result, held: Held) -> None:
        """Compare the model of a worker after an exchange with the others'."""
        nonce = worker.exchange.store.nonce
        if nonce in self._unsure:  # it was a member when this exchange was acknowledged
            self._compare(*self._unsure.pop(nonce))
        if self._schedule.settings.rounds and result.used:
            held_now = b"".join(vector.tobytes() for vector in held.vectors.values())
            if self._elastic and not result.finished:
                self._unsure[nonce] = result.round, held_now
            else:
                self._compare(result.round, held_now)
        if not result.finished:
            self._check_staleness(worker)

    def finishes(self, worker: Worker) -> None:
        """A worker has come to the end of the run, and is about to say goodbye."""
        self._reached[worker.rank] = ENDLESS  # nobody waits for it
        if worker.rank == 0:
            write_whole(self._world.disk.root / "model" / "model.params", b"the final model")
            self._written = True

    def barrier(self, nonce: int, group: int) -> None:
        """Let a process come to a barrier of ps-lite, and wait until it opens."""
        process = self._process(nonce)
        self._moment(JOIN)
        self._came[nonce] += 1
        self._tell(process, Message(messages.BARRIER, group=group, request=True))
        self.cluster.wait(lambda: self._opened[nonce] >= self._came[nonce])

    def disk_step(self) -> None:
        """Let others go on before a process changes the disk."""
        task = self.cluster.running
        if task is not None:
            if not task.killed:
                self._moment(PART, self._process(task.owner))
            self.cluster.pause()
            self._hang(PART)

    # --- the launcher -----------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        while True:
            self.cluster.wait(lambda: bool(self._ended) or not self._running)
            if not self._ended:
                break
            ended = self._ended.popleft()
            if isinstance(ended, int):
                raise JobOverError(f"the launcher ends the job: server {ended} has died")
            self._deal_with(ended)
        self._over = True

    def _deal_with(self, process: Process) -> None:
        number, schedule = process.number, self._schedule
        if process.code == 0 or self._left:
            return  # in the end only worker 0 would have had something to do
        if not process.joined and not self._restarts[number]:
            self._spare -= 1
            if self._spare >= 0:
                return  # another one has been started already
            raise JobOverError(f"the launcher ends the job: worker {number} has ended before it had begun")
        if self._restarts[number] >= schedule.restarts:
            if not self._elastic or not self._running:
                raise JobOverError(f"the launcher ends the job: worker {number} may not be replaced any more")
            return  # the others go on without it
        self._restarts[number] += 1
        if schedule.settings.forgetful:
            self._observed.models = None
        self._start(number, None if schedule.surplus else process.slot, self._world.chance.choice(STARTS))

    @property
    def _running(self) -> list[Process]:
        return [process for process in self._processes if process.code is None]

    def _process(self, nonce: int) -> Process:
        return self._processes[nonce - 1]

    def _start(self, number: int, slot: int | None = None, after: float = 0.0) -> None:
        nonce = len(self._processes) + 1
        node = messages.Node(messages.WORKER, self._host(number), 1000 + nonce)
        process = Process(number, nonce, slot, node)
        self._processes.append(process)
        self._known[node.address] = process
        name = f"worker {number}" + f" (process {nonce})" * (nonce > self._schedule.workers)
        self.cluster.spawn(name, nonce, lambda: self._work(process, after), fatal=True)

    def _host(self, number: int, server: bool = False) -> str:
        net = int(server and self._schedule.dedicated)
        return f"10.0.{net}.{number % self._schedule.machines + 1}"

    def _work(self, process: Process, after: float) -> None:
        """Run a worker process, from its start to its end."""
        cluster = self.cluster
        self._sleep(after)
        cluster.connected[process.nonce] = process.node.address
        self._tell(process, Message(messages.ADD_NODE, (process.node,)))
        cluster.wait(lambda: process.node.id != messages.EMPTY or self._roster.over)
        if process.node.id == messages.EMPTY:
            self._end(process, 0)  # the scheduler says that there is nothing left to do
            return
        rank = (process.node.id - worker_id(0)) // 2
        newcomer = process.node.recovery
        if not newcomer:
            self.barrier(process.nonce, EVERYBODY)
        slot = rank if not newcomer or process.slot is None else process.slot
        store = MemoryStore(cluster, slot % self._schedule.workers, process.nonce, newcomer)
        if self._elastic and self._restarts[process.number] >= self._schedule.restarts:
            store.replacement = 0.0  # nobody has promised one
        worker = Worker(self._schedule, store, self)
        code = 0
        try:
            worker.run()
        except SlotLostError as error:
            cluster.history.append(f"worker {process.number}: {error}")
            worker.exchange.close()
            code = 1
        except JobAbortedError as error:
            raise InvariantError(f"the job was aborted: {error}") from error
        cluster.wait(lambda: not cluster.under_way(process.nonce) or bool(cluster.stopped))
        self._end(process, code)

    def _end(self, process: Process, code: int) -> None:
        process.code = code
        self.cluster.connected.pop(process.nonce, None)
        self._departed.append(process.node.address)
        self._ended.append(process)

    def _sleep(self, seconds: float) -> None:
        if seconds:
            until = self.cluster.now + seconds
            self.cluster.wait(lambda: self.cluster.now >= until, until)

    # --- servers that come and leave ---------------------------------------------------------------------------------

    def _serve(self, shard: int) -> None:
        """A server comes."""
        self._sleep(self._world.chance.choice(STARTS))
        node = messages.Node(messages.SERVER, self._host(shard, True), 100 + shard)
        self._post.append((Message(messages.ADD_NODE, (node,)), messages.EMPTY))

    def _end_servers(self) -> None:
        """What servers do when not a single worker is there for long; see `KVStoreServer.alone`."""
        cluster = self.cluster
        while not self._over:
            cluster.wait(lambda: self._over or (self._roster.complete and not self._members))
            until = cluster.now + config.WORKERS_GONE
            cluster.wait(lambda: self._over or bool(self._members), until)
            if self._over or self._members:
                continue
            if not self._roster.begun:
                raise JobOverError("the servers end the job: all workers are gone before it has begun")
            for shard, node in enumerate(cluster.nodes):
                if node.endpoint.server.ledger.over and shard not in self._left:
                    self._leave(shard)
            cluster.wait(lambda: self._over or bool(self._members))

    @property
    def _members(self) -> list[Process]:
        return [process for process in self._running if process.node.id != messages.EMPTY]

    def _leave(self, shard: int) -> None:
        """A server ends: the run is over. See `KVStoreServer._leave`."""
        self._left.add(shard)
        self.cluster.spawn(f"server {shard}", NOBODY, lambda: self._say_goodbye(shard), fatal=True)

    def _say_goodbye(self, shard: int) -> None:
        cluster, me = self.cluster, self._servers[shard]
        self._post.append((Message(messages.OVER, (me,)), me.id))
        cluster.wait(lambda: not self._post or self._over)
        self._sleep(FAREWELL)
        cluster.stopped.add(shard)
        self._sleep(config.PEER_GONE)
        cluster.at(cluster.steps + 1, self._cut_off)

    def _cut_off(self) -> None:
        """Workers end without a server. See `MXNetStore._cut_off`."""
        for process in self._members:
            self.cluster.history.append(f"worker {process.number} is cut off")
            if not self._roster.over:
                raise InvariantError(f"worker {process.number} waits for a server that has left, and knows of no end")
            self.cluster.kill_process(process.nonce)
            self._unsure.pop(process.nonce, None)
            self._end(process, 0)

    # --- deaths -----------------------------------------------------------------------------------------------------

    def _moment(self, moment: str, process: Process | None = None) -> None:
        """There is another moment of that kind, and a process that it is about: somebody may have to die."""
        count = self._world.moments[moment]
        self._world.moments[moment] += 1
        for death in self._schedule.deaths:
            if (death.moment, death.step) == (moment, count):
                self.cluster.at(self.cluster.steps + 1, lambda death=death: self._strike(death, process))  # type: ignore[misc]

    def _strike(self, death: Death, concerned: Process | None = None) -> None:
        cluster = self.cluster
        cluster.history.append(f"--- {death}")
        if death.what in (POWER, DISK):
            self._world.disk.lose_power(self._world.chance.randrange)
            if death.what == DISK:
                Store(self.folder, death.number).remove(lambda round_: True)
            raise JobOverError("the power is gone")
        if death.what == MACHINE:
            host = self._host(death.number) if concerned is None else concerned.node.host
            for process in [process for process in self._running if process.node.host == host]:
                self._kill(process)
            for shard in range(self._schedule.servers):
                if self._host(shard, True) == host and shard not in cluster.stopped:
                    cluster.stopped.add(shard)
                    self._ended.append(shard)
        for process in self._running:
            if process is not concerned and (concerned is not None or process.number != death.number):
                continue
            if death.what == WORKER:
                self._kill(process)
            elif death.what == HANG:
                process.hangs = PART if death.moment == PART else STEP

    def _kill(self, process: Process) -> None:
        self.cluster.kill_process(process.nonce)
        self._unsure.pop(process.nonce, None)
        self._end(process, -9)

    def _hang(self, where: str) -> None:
        """Have the running process take longer than the lease, where it is to."""
        task = self.cluster.running
        process = self._process(task.owner)
        if process.hangs == where and not task.killed:
            process.hangs, process.silent = "", where == STEP
            self._sleep(self._world.chance.choice(HANGS) * self._schedule.lease)
            process.silent = False

    # --- the scheduler ----------------------------------------------------------------------------------------------

    def _schedule_all(self) -> None:
        given_up = 0.0
        while True:
            self.cluster.wait(lambda: bool(self._post or self._departed) or self._over, given_up or math.inf)
            given_up = 0.0
            if self._departed:
                gone = [self._departed.popleft()]
                self._send(self._roster.admit([*self._gone, *gone]))
                self._gone |= dict.fromkeys(gone, self.cluster.now + config.PEER_GONE)
            elif self._post:
                message, sender = self._post.popleft()
                self._send(self._roster.take(message, sender))
                if message.command == messages.ADD_NODE:
                    self._moment(JOIN)
                self._send(self._roster.admit([*self._gone]))
            elif self._over:
                return
            self._roster.give_up({place for place, until in self._gone.items() if until <= self.cluster.now})
            if self._roster.lost:
                raise JobOverError(f"the scheduler ends the job: {self._roster.lost} are gone")
            if not self._roster.begun:
                given_up = min((until for until in self._gone.values() if until > self.cluster.now), default=0.0)

    def _tell(self, process: Process, message: Message) -> None:
        """Send the scheduler a message from a process."""
        arrive = lambda: self._post.append((message, process.node.id))  # noqa: E731
        self.cluster.put(process.nonce, NO_SERVER, Flight(NO_SERVER, f"news of worker {process.number}", [arrive]))

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            what = f"news for {sending.to.host}:{sending.to.port}"
            arrive = lambda sending=sending: self._hear(sending)  # noqa: E731
            self.cluster.put(NOBODY, -sending.to.port, Flight(NO_SERVER, what, [arrive]))

    def _hear(self, sending: Sending) -> None:
        message, place = sending.message, sending.to.address
        process = self._known.get(place)
        if message.command == messages.ADD_NODE:
            me = next((node for node in message.nodes if node.address == place), None)
            if process is not None and me is not None:
                process.node = me
                self._moment(JOIN)
            elif me is not None:  # a server, which waits for all from now on
                self._servers[me.port - 100] = me
                self._post.append((Message(messages.BARRIER, group=EVERYBODY, request=True), me.id))
        elif process is not None and message.command == messages.BARRIER:
            self._opened[process.nonce] += 1

    # --- invariants -------------------------------------------------------------------------------------------------

    def serve(self, node: Node, key: int, values: np.ndarray, push: Callable[[], None]) -> None:
        """Let something arrive at a server, and check that it draws the right conclusions."""
        shard = self.cluster.nodes.index(node)
        ledger = node.endpoint.server.ledger
        before = ledger.member.copy()
        push()
        for rank in np.flatnonzero(before & ~ledger.member).tolist():
            self._check_absence(shard, self._process(int(ledger.nonce[rank])), rank in ledger.left)
        decides = self.cluster.nodes[0].endpoint.server.ledger  # the others do not know when a worker asks for it
        if ledger.deserted and shard not in self._left:
            if not decides.finished:
                raise InvariantError(f"server {shard} ends after round {ledger.round}, though the run is not over")
            self._leave(shard)
        if decides.finished:
            self._moment(END)
        elif key < len(self.cluster.nodes):
            message = wire.unpack(values, wire.message_type(ledger.added))
            if message["kind"] == wire.COMMIT:
                self._note_commit(int(message["nonce"]), int(message["sequence"]))

    def _note_commit(self, nonce: int, sequence: int) -> None:
        """A commit has reached one more server."""
        self._torn[nonce, sequence] = reached = self._torn.get((nonce, sequence), 0) + 1
        if reached < max(2, self._schedule.servers):
            self._moment(COMMIT, self._process(nonce))

    def _check_absence(self, shard: int, process: Process, left: bool) -> None:
        """A server goes on without a worker: is it dead, or has it been silent?"""
        there = process.code is None and process.joined and not left
        if there and not process.silent and self.cluster.idle(process.nonce):
            raise InvariantError(
                f"server {shard} goes on without worker {process.number}, which has said that it is there"
            )

    def _count(self, worker: Worker) -> None:
        """Note how far a worker is."""
        sequence = worker.exchange.sequence
        self._reached[worker.rank] = sequence - self._before.setdefault(worker.rank, sequence)

    def _check_staleness(self, worker: Worker) -> None:
        """A worker goes on: is it too far ahead of another one, of those exchanges that others know of?"""
        rank, most = worker.rank, worker.exchange.specification.staleness + 1
        self._count(worker)
        for other in range(self._schedule.workers):
            if self._reached[rank] - self._reached.get(other, 0) > most:
                raise InvariantError(
                    f"worker {rank} has had {self._reached[rank]} exchanges of this job, and worker {other} has had "
                    f"{self._reached.get(other, 0)}"
                )

    def wrote(self, rank: int, round_: int, facts: dict[str, Any]) -> None:
        """Note that a part of a checkpoint is on the disk."""
        observed, checkpoint = self._observed, (round_, int(facts["job"]))
        observed.parts[checkpoint].add(rank)
        if "needs" in facts:
            observed.needs[checkpoint] = set(facts["needs"])
        if observed.needs.get(checkpoint, {-1}) <= observed.parts[checkpoint]:
            observed.newest = max(observed.newest, round_)

    def _compare(self, round_: int, model: bytes) -> None:
        if self._models.setdefault(round_, model) != model:
            raise InvariantError(f"two workers have different models after round {round_}")
        models = self._observed.models
        if models is not None and models.setdefault(round_, model) != model:
            raise InvariantError(f"the model after round {round_} is another one than it was in an earlier job")

    def _check_end(self) -> None:
        """Check the servers' books when all processes have ended by themselves."""
        schedule, settings = self._schedule, self._schedule.settings
        ledgers = [node.endpoint.server.ledger for node in self.cluster.nodes]
        if not ledgers[0].finished:
            raise InvariantError(f"all workers have ended, and the run is not over after round {ledgers[0].round}")
        if settings.rounds and not self._elastic and not self._written:
            raise InvariantError("the run is finished, and nobody has written the final model")
        self._check_agreement(ledgers)
        used = [Counter(each[:2] for use in log_of(ledger) for each in use.commits) for ledger in ledgers]
        # The first server decides when the run is over: of commits that are used at once, the last ones may be under
        # way then, and others may use them all the same.
        last = [use for ledger in ledgers for use in log_of(ledger)[-1:]]
        late = {commit for use in last if not use.together for commit in _newest(used)}
        if self._elastic:
            # Servers go on without a worker that dies between two of them, each when it notices, and its replacement
            # takes part from the earliest round on that one of them has under way.
            logs = sorted({each for ledger in ledgers for use in log_of(ledger) for each in use.commits}, reverse=True)
            whole = {process.nonce for process in self._processes if process.code == 0}
            first = {each.nonce: each[:2] for each in logs if each.nonce > schedule.workers}
            late |= {each[:2] for each in logs if each.nonce not in whole} | set(first.values())
        for shard, counts in enumerate(used):
            if twice := [each for each, count in counts.items() if count > 1]:
                raise InvariantError(f"server {shard} has used commits (rank, sequence) twice: {twice}")
            if only := {*(counts - used[0]), *(used[0] - counts)} - late:
                raise InvariantError(f"only one of servers 0 and {shard} has used commits {sorted(only)}")
        books = {(ledger.round, ledger.version, ledger.step, ledger.samples) for ledger in ledgers}
        if not late and len(books) > 1:
            raise InvariantError(f"the servers' books differ: {sorted(books)}")
        if settings.rounds and len({ledger.round for ledger in ledgers}) > 1:
            raise InvariantError(f"servers have ended different rounds: {sorted(books)}")
        if settings.rounds and not settings.elastic:
            for use in log_of(ledgers[0]):
                if sorted(each.rank for each in use.commits) != list(range(schedule.workers)):
                    raise InvariantError(f"a round was one of {use.commits}")
        if settings.linear and not schedule.momentum:
            self._check_weights()

    def _check_agreement(self, ledgers: list[Ledger]) -> None:
        """Servers that have used the same commits in a round agree on how the next ones are used, and on whose."""
        seen: dict[tuple[int, tuple[Commit, ...]], tuple[bool, tuple[int, ...]]] = {}
        for ledger in ledgers:
            for use in log_of(ledger):
                if use.together and seen.setdefault((use.round, use.commits), use.outcome) != use.outcome:
                    raise InvariantError(f"servers do not agree on how commits are used after {use}")

    def _check_weights(self) -> None:
        """Check that the servers' weights are the sum of the commits that they have used."""
        schedule = self._schedule
        if self._initial is None:
            raise InvariantError("nobody has begun")
        for node in self.cluster.nodes:
            server, expected = node.endpoint.server, self._initial.weights.astype(np.float64)
            for use in log_of(server.ledger):
                for rank, sequence, _ in use.commits:
                    rate = 1.0 if schedule.settings.specification.sparse else RATE / len(use.commits)
                    expected -= rate * gradient(rank, sequence, schedule.workers)
            for bucket in server.layout.of(WEIGHTS, self.cluster.nodes.index(node)):
                held = node.stored[server.layout.key(bucket)][wire.HEADER_ELEMENTS :]
                if not np.allclose(held, expected[bucket.start : bucket.stop], rtol=1e-4, atol=1e-5):
                    raise InvariantError(f"bucket {bucket.index} does not hold what was used")


class Commit(NamedTuple):
    """A commit that a server has used, and whose it was."""

    rank: int
    sequence: int
    nonce: int


@dataclass(frozen=True)
class Use:
    """Commits that a server has used.

    Attributes:
        commits: which ones.
        together: whether they were a round; else there is one.
        round: rounds that were over then.
        outcome: whether the next ones are used together, and whom they do not wait for.
    """

    commits: tuple[Commit, ...]
    together: bool
    round: int
    outcome: tuple[bool, tuple[int, ...]]


def log_of(ledger: Ledger) -> list[Use]:
    """Return what a server has used, in order."""
    return ledger.__dict__.setdefault("log_of_search", [])


def _newest(used: Iterable[Iterable[tuple[int, int]]]) -> set[tuple[int, int]]:
    """Return the last commit of each worker, as rank and sequence number."""
    newest = dict(sorted(set().union(*used)))
    return set(newest.items())


@contextmanager
def _kept_books() -> Iterator[None]:
    """Have every ledger keep a log of the commits that were used; see `log_of`."""
    applied = Ledger.applied

    def kept(ledger: Ledger, ranks: list[int], now: float) -> None:
        commits = [ledger.pending[rank].message for rank in ranks]
        uses = tuple(
            Commit(rank, int(message["sequence"]), int(message["nonce"]))
            for rank, message in zip(ranks, commits, strict=True)
        )
        together = ledger.together(commits[0])
        applied(ledger, ranks, now)
        outcome = ledger.synchronous, tuple(np.flatnonzero(ledger.apart).tolist())
        log_of(ledger).append(Use(uses, together, ledger.rounds_together, outcome))

    with mock.patch.object(Ledger, "applied", kept):
        yield


def _watch(node: Node, job: Job) -> None:
    push = node.push

    def watched(key: int, values: np.ndarray, init: bool = False) -> None:
        job.serve(node, key, values, lambda: push(key, values, init))

    node.push = watched  # type: ignore[method-assign]
