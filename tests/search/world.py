"""Runs a schedule with machines, workers, servers, a scheduler, a launcher and a disk."""

import math
import os
import random
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from esync import config
from esync.checkpoints.lock import RankLock
from esync.checkpoints.store import CheckpointStore, Part
from esync.exchange import JobAbortedError, Payload, SlotLostError
from esync.exchange.base import Result
from esync.exchange.host_group import HostGroup
from esync.exchange.keystores.memory_host_group import MemoryHost, MemoryHostGroup
from esync.exchange.protocol import wire
from esync.membership.rendezvous import messages
from esync.membership.rendezvous.messages import Message
from esync.membership.rendezvous.node_registry import NodeRegistry, OutgoingMessage, scheduler_node, worker_id
from esync.runtime.files import write_atomically

from ..support.memory_cluster import MemoryServer, MemoryStore, Transmission
from ..support.vectors import Held
from ..support.volatile_disk import VolatileDisk
from .algorithms import AlgorithmWorker, StateServer
from .invariants import AnyWorker, InvariantError, Invariants, Observed, check_checkpoints, logged_commits
from .launcher import STARTS, Launcher
from .processes import NO_SERVER, NOBODY, Cluster, JobOverError, Machines, Process
from .schedule import CARRY, COMMIT, END, JOIN, PART, STEP, Schedule
from .worker import WatchedExchange, Worker

#: Where the scheduler is.
SCHEDULER = scheduler_node("10.0.0.1", 9000)
#: A folder in memory: files there need no disk.
MEMORY = "/dev/shm"
#: Group of ps-lite's barrier of all, and of all workers.
EVERYBODY, WORKERS = 7, 4
#: Jobs in one schedule, each going on from the one before; more than there are deaths.
JOBS = 12
#: Seconds from the moment when a server tells that it leaves until it is gone.
FAREWELL = 1.0


class World:
    """All jobs of one schedule, on one disk.

    Args:
        schedule: how the jobs are set up, and who dies when.

    Attributes:
        history: what has happened, in words.
        steps: number of steps of the jobs that are over.
        jobs: number of jobs.
        processes: number of workers' processes of the jobs that are over.
        moments: number of moments of each kind so far; see `schedule`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.observed = schedule, Observed()
        self.chance = random.Random(f"{schedule.kind} {schedule.seed} order")
        self.history: list[str] = []
        self.steps = self.jobs = self.processes = 0
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
            logged_commits(),
            mock.patch.object(CheckpointStore, "write", self._writing),
            mock.patch.object(CheckpointStore, "keep", self._keeping),
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
                self.processes += len(job.machines.processes)
                self.job = None
                if job.begun:
                    self.observed.note(job.cluster.nodes[0].endpoint.server.round_state)
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
        """`CheckpointStore.write`, which also tells the job of every part."""
        write = CheckpointStore.write

        def writing(store: CheckpointStore, round_: int, writers: Any, facts: Any) -> Part:
            part = write(store, round_, writers, facts)
            if self.job is not None:
                self.observed.wrote(store.rank, round_, facts)
            return part

        return writing

    @property
    def _keeping(self) -> Callable[..., None]:
        """`CheckpointStore.keep`, and a look at what is left."""
        keep = CheckpointStore.keep

        def keeping(store: CheckpointStore, count: int, whole: int) -> None:
            keep(store, count, whole)
            self._check_checkpoints()

        return keeping

    def _check_checkpoints(self) -> None:
        check_checkpoints(self.folder, self.schedule.workers, self.observed.newest)


class Job:
    """One job: from the start of its processes to the end of the last one.

    Args:
        world: what it is part of.

    Attributes:
        cluster: its servers and workers.
        machines: its processes.
        folder: of the checkpoints.
        state_server: what it keeps, where an algorithm asks one.
    """

    def __init__(self, world: World) -> None:
        self._world, self._schedule, self.folder = world, world.schedule, world.folder
        self.cluster = cluster = Cluster(world, lambda nonce: self._barrier(nonce, WORKERS))
        self.machines = machines = Machines(world, cluster, self._ended)
        self._invariants = Invariants(self._schedule, cluster, machines.processes, world.observed)
        self.state_server = StateServer()
        self._left: set[int] = set()  # servers that have ended by themselves
        self._launcher = Launcher(
            self._schedule, cluster, machines, world.chance, self._left, self._start, world.observed.forget
        )
        self._post: deque[tuple[Message, int]] = deque()  # for the scheduler, with the sender's id
        self._departed: deque[tuple[str, int]] = deque()
        self._gone: dict[tuple[str, int], float] = {}  # when nobody waits for it any more
        self._known: dict[tuple[str, int], Process] = {}
        self._opened: Counter[int] = Counter()  # process → barriers that have opened for it
        self._came: Counter[int] = Counter()
        self._registry = NodeRegistry(SCHEDULER, self._schedule.servers, self._schedule.workers)
        self._servers: dict[int, messages.Node] = {}
        self._torn: dict[tuple[int, int], int] = {}  # process and sequence of its commit → servers that have it

    def run(self) -> bool:
        """Run the job to its end, and return whether the training is finished.

        Raises:
            InvariantError: an invariant does not hold.
            DeadlockError: the job does not end.
        """
        cluster, machines, schedule = self.cluster, self.machines, self._schedule
        for death in schedule.deaths:
            if death.moment == STEP:
                cluster.at(death.step - self._world.steps, lambda death=death: machines.strike(death))  # type: ignore[misc]
        for shard in range(schedule.servers):
            cluster.spawn(f"server {shard}", NOBODY, lambda shard=shard: self._serve(shard), fatal=True)  # type: ignore[misc]
            _watch(cluster.nodes[shard], self)
        cluster.spawn("the scheduler", NOBODY, self._schedule_all, fatal=True)
        cluster.spawn("the launcher", NOBODY, self._launcher.run, fatal=True)
        cluster.spawn("the servers", NOBODY, self._end_servers, fatal=True)
        for number in range(schedule.workers + schedule.surplus):
            self._start(number)
        try:
            cluster.run()
        except JobOverError as error:
            cluster.history.append(str(error))
            return False
        self._invariants.check_end()
        return True

    @property
    def begun(self) -> bool:
        """Whether the workers have had the common model."""
        return self._registry.begun

    # --- what the workers tell, and ask -----------------------------------------------------------

    def begins(self, worker: AnyWorker, held: Held, exact: np.ndarray | None) -> None:
        """Note the model that worker 0 begins with.

        `exact` are the servers' weights if a checkpoint has others.
        """
        self.machines.moment(JOIN)
        self._invariants.begins(worker, held, exact)

    def joined(self, worker: AnyWorker) -> None:
        """Note that a worker has the common model, and tell the scheduler."""
        process = self.machines.of(worker.exchange.store.nonce)
        self._tell(process, Message(messages.BEGUN, (process.node,)))
        self.cluster.wait(lambda: self._registry.begun)
        process.joined, process.slot = True, worker.rank
        self._invariants.count(worker)

    def iteration(self, worker: AnyWorker) -> None:
        """Let a worker hang here, between two exchanges, where it is to."""
        self.machines.hang(STEP)

    def sent(self, exchange: WatchedExchange, payload: Payload) -> None:
        """Note what a worker sends."""
        self._invariants.sent(exchange, payload)

    def exchanged(self, worker: AnyWorker, result: Result, held: Held) -> None:
        """Look at what a worker holds after an exchange."""
        self._invariants.exchanged(worker, result, held)
        if isinstance(worker, AlgorithmWorker) and worker.waits and self._steady:
            self._invariants.check_wait(worker, result, self.state_server.coordinator)

    @property
    def _steady(self) -> bool:
        """Whether iterations always take the same time, and nobody has died yet."""
        processes = self.machines.processes
        return (
            not self._schedule.jitter
            and not any(process.code for process in processes)
            and len(processes) == self.cluster.workers
        )

    def finishes(self, worker: AnyWorker) -> None:
        """A worker has come to the end of the run, and is about to say goodbye."""
        self._invariants.finishes(worker)
        if worker.rank == 0:
            write_atomically(self._world.disk.root / "model" / "model.params", b"the final model")
            self._invariants.written = True

    def _barrier(self, nonce: int, group: int) -> None:
        """Let a process come to a barrier of ps-lite, and wait until it opens."""
        process = self.machines.of(nonce)
        self.machines.moment(JOIN)
        self._came[nonce] += 1
        self._tell(process, Message(messages.BARRIER, group=group, request=True))
        self.cluster.wait(lambda: self._opened[nonce] >= self._came[nonce])

    def disk_step(self) -> None:
        """Let others go on before a process changes the disk."""
        task = self.cluster.running
        if task is not None:
            if not task.killed:
                self.machines.moment(PART, self.machines.of(task.owner))
            self.cluster.pause()
            self.machines.hang(PART)

    def host_group(self, store: MemoryStore) -> HostGroup | None:
        """What a process shares with the other workers of its machine.

        One that runs on another machine than its slot's worker should exchanges by itself.
        """
        group, machines = self.cluster.host_group(store), self._schedule.machines
        if group is not None and self.machines.of(store.nonce).number % machines != store.rank % machines:
            return MemoryHostGroup(MemoryHost((store.rank,), group.max_size), store.rank, store.nonce)
        if group is not None:
            _watch_carriers(group, store.nonce, lambda: self.machines.moment(CARRY, self.machines.of(store.nonce)))
        return group

    # --- workers ----------------------------------------------------------------------------------

    def _start(self, number: int, slot: int | None = None, after: float = 0.0) -> None:
        process = self.machines.add(number, slot)
        self._known[process.node.address] = process
        count = len(self.machines.processes)
        name = f"worker {number}" + f" (process {count})" * (count > self._schedule.workers)
        self.cluster.spawn(name, process.nonce, lambda: self._work(process, after), fatal=True)

    def _ended(self, ended: Process | int) -> None:
        """Note that a worker's process has ended, or that a server has died.

        The launcher is told, and of workers the scheduler, too.
        """
        if isinstance(ended, Process):
            self._departed.append(ended.node.address)
        self._launcher.ended.append(ended)

    def _work(self, process: Process, after: float) -> None:
        """Run a worker process, from its start to its end."""
        cluster = self.cluster
        self.machines.sleep(after)
        cluster.connected[process.nonce] = process.node.address
        if process.slot is not None:
            self._tell(
                process,
                Message(messages.RANK_REQUEST, (process.node.with_number(worker_id(process.slot)),), request=True),
            )
        self._tell(process, Message(messages.ADD_NODE, (process.node,)))
        cluster.wait(lambda: process.node.id != messages.EMPTY or self._registry.over)
        if process.node.id == messages.EMPTY:
            self.machines.end(process, 0)  # the scheduler says that there is nothing left to do
            return
        rank = (process.node.id - worker_id(0)) // 2
        recovery = process.node.recovery
        if not recovery:
            self._barrier(process.nonce, EVERYBODY)
        slot = rank if not recovery or process.slot is None else process.slot
        store = MemoryStore(cluster, slot % self._schedule.workers, process.nonce, recovery)
        if self._schedule.settings.elastic and not self._launcher.may_replace(process.number):
            store.replacement = 0.0  # nobody has promised one
        worker = (AlgorithmWorker if self._schedule.settings.mode else Worker)(self._schedule, store, self)
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
        if store.finished and code == 0:
            self._tell(process, Message(messages.DONE, (process.node,)))
            cluster.wait(lambda: not cluster.under_way(process.nonce))
        self.machines.end(process, code)

    # --- servers that come and leave --------------------------------------------------------------

    def _serve(self, shard: int) -> None:
        """A server comes."""
        self.machines.sleep(self._world.chance.choice(STARTS))
        node = messages.Node(messages.SERVER, self.machines.host(shard, True), 100 + shard)
        self._post.append((Message(messages.ADD_NODE, (node,)), messages.EMPTY))

    def _end_servers(self) -> None:
        """What servers do when not a single worker is there for long; see `KVStoreServer.alone`."""
        cluster = self.cluster
        while not self._launcher.over:
            cluster.wait(lambda: self._launcher.over or (self._registry.complete and not self._members))
            until = cluster.now + config.NO_WORKERS_TIMEOUT
            cluster.wait(lambda: self._launcher.over or bool(self._members), until)
            if self._launcher.over or self._members:
                continue
            if not self._registry.begun:
                raise JobOverError("the servers end the job: all workers are gone before it has begun")
            for shard, node in enumerate(cluster.nodes):
                if node.endpoint.server.round_state.over and shard not in self._left:
                    self._leave(shard)
            cluster.wait(lambda: self._launcher.over or bool(self._members))

    @property
    def _members(self) -> list[Process]:
        return [process for process in self.machines.running if process.node.id != messages.EMPTY]

    def _leave(self, shard: int) -> None:
        """A server ends: the run is over. See `KVStoreServer._leave`."""
        self._left.add(shard)
        self.cluster.spawn(f"server {shard}", NOBODY, lambda: self._say_goodbye(shard), fatal=True)

    def _say_goodbye(self, shard: int) -> None:
        cluster, me = self.cluster, self._servers[shard]
        self._post.append((Message(messages.OVER, (me,)), me.id))
        cluster.wait(lambda: not self._post or self._launcher.over)
        self.machines.sleep(FAREWELL)
        cluster.stopped.add(shard)
        self.machines.sleep(config.PEER_TIMEOUT)
        cluster.at(cluster.steps + 1, self._cut_off)

    def _cut_off(self) -> None:
        """Workers end without a server. See `MXNetStore._on_disconnect`."""
        for process in self._members:
            self.cluster.history.append(f"worker {process.number} is cut off")
            if not self._registry.over:
                raise InvariantError(f"worker {process.number} waits for a server that has left, and knows of no end")
            self.cluster.kill_process(process.nonce)
            self.machines.end(process, 0)

    # --- the scheduler ----------------------------------------------------------------------------

    def _schedule_all(self) -> None:
        given_up = 0.0
        while True:
            self.cluster.wait(lambda: bool(self._post or self._departed) or self._launcher.over, given_up or math.inf)
            given_up = 0.0
            if self._departed:
                addresses = [self._departed.popleft()]
                self._send(self._registry.admit([*self._gone, *addresses]))
                self._gone |= dict.fromkeys(addresses, self.cluster.now + config.PEER_TIMEOUT)
            elif self._post:
                message, sender = self._post.popleft()
                self._send(self._registry.handle(message, sender))
                if message.command == messages.ADD_NODE:
                    self.machines.moment(JOIN)
                self._send(self._registry.admit([*self._gone]))
            elif self._launcher.over:
                return
            self._registry.give_up({place for place, until in self._gone.items() if until <= self.cluster.now})
            if self._registry.lost:
                raise JobOverError(f"the scheduler ends the job: {self._registry.lost} are gone")
            if not self._registry.begun:
                given_up = min((until for until in self._gone.values() if until > self.cluster.now), default=0.0)

    def _tell(self, process: Process, message: Message) -> None:
        """Send the scheduler a message from a process."""
        arrive = lambda: self._post.append((message, process.node.id))  # noqa: E731
        self.cluster.put(
            process.nonce, NO_SERVER, Transmission(NO_SERVER, f"news of worker {process.number}", [arrive])
        )

    def _send(self, sendings: list[OutgoingMessage]) -> None:
        for sending in sendings:
            what = f"news for {sending.to.host}:{sending.to.port}"
            arrive = lambda sending=sending: self._hear(sending)  # noqa: E731
            self.cluster.put(NOBODY, -sending.to.port, Transmission(NO_SERVER, what, [arrive]))

    def _hear(self, sending: OutgoingMessage) -> None:
        message, place = sending.message, sending.to.address
        process = self._known.get(place)
        if message.command == messages.ADD_NODE:
            me = next((node for node in message.nodes if node.address == place), None)
            if process is not None and me is not None:
                process.node = me
                self.machines.moment(JOIN)
            elif me is not None:  # a server, which waits for all from now on
                self._servers[me.port - 100] = me
                self._post.append((Message(messages.BARRIER, group=EVERYBODY, request=True), me.id))
        elif process is not None and message.command == messages.BARRIER:
            self._opened[process.nonce] += 1

    # --- what arrives at a server -----------------------------------------------------------------

    def serve(self, node: MemoryServer, key: int, values: np.ndarray, push: Callable[[], None]) -> None:
        """Let something arrive at a server, and check that it draws the right conclusions."""
        shard = self.cluster.nodes.index(node)
        round_state = node.endpoint.server.round_state
        before = round_state.member.copy()
        push()
        for rank in np.flatnonzero(before & ~round_state.member).tolist():
            self._invariants.check_absence(
                shard, self.machines.of(int(round_state.nonce[rank])), rank in round_state.left
            )
        decides = self.cluster.nodes[0].endpoint.server.round_state  # the others do not know when a worker asks for it
        if round_state.can_exit and shard not in self._left:
            if not decides.finished:
                raise InvariantError(f"server {shard} ends after round {round_state.round}, though the run is not over")
            self._leave(shard)
        if decides.finished:
            self.machines.moment(END)
        elif key < len(self.cluster.nodes):
            message = wire.unpack(values, wire.message_type(round_state.added))
            if message["kind"] == wire.COMMIT:
                self._note_commit(int(message["nonce"]), int(message["sequence"]))

    def _note_commit(self, nonce: int, sequence: int) -> None:
        """A commit has reached one more server."""
        self._torn[nonce, sequence] = reached = self._torn.get((nonce, sequence), 0) + 1
        if reached < max(2, self._schedule.servers):
            self.machines.moment(COMMIT, self.machines.of(nonce))


def _watch(node: MemoryServer, job: Job) -> None:
    push = node.push

    def watched(key: int, values: np.ndarray, init: bool = False) -> None:
        job.serve(node, key, values, lambda: push(key, values, init))

    node.push = watched  # type: ignore[method-assign]


def _watch_carriers(group: MemoryHostGroup, nonce: int, call: Callable[[], object]) -> None:
    """Have a function called whenever this process becomes the carrier of a group."""
    locked, place = group.locked, group.ranks.index(group.rank)

    @contextmanager
    def watched() -> Iterator[np.ndarray]:
        with locked() as table:
            row: Any = table["workers"][place]
            before = int(row["carrier"])
            yield table
            if before != group.rank == row["carrier"] and row["carrier_nonce"] == nonce:
                call()

    group.locked = watched  # type: ignore[method-assign]
