"""Parameter servers and workers in this process, under a scheduler that orders all events.

Workers are greenlets that run ordinary blocking code. Whatever is under way belongs to the
scheduler: arrays and messages on their way to servers, requests for arrays and their answers,
commands, and tasks that can go on. It lets one of them happen after the other, in the order that a
source of choices says. The same choices make the same history.

What ps-lite guarantees holds in every order: what one worker sends and asks for under one key stays
in order, and all else may overtake it; the first array of a key is kept without being looked at;
every later one must be as large.

Time only passes when nothing else can happen, so that no wait is longer than it must be.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import greenlet
import numpy as np

from esync import config
from esync.exchange.base import ExchangeError
from esync.exchange.keystores.keyed import KeyedStore
from esync.exchange.keystores.memory_host_group import MemoryHost, MemoryHostGroup
from esync.exchange.protocol.endpoint import Endpoint
from esync.exchange.protocol.handshake import Command, decode
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.exchange.protocol.status import Status, awaited
from esync.exchange.protocol.store import CancelledError, heartbeat_interval
from esync.exchange.worker_monitor import WorkerMonitor
from esync.membership.connections import Address
from esync.membership.peers import Peers
from esync.runtime.errors import DeadlockError

#: Given the number of events that can happen next, returns which one does, from 0;
#: `random.Random(seed).randrange`, for instance.
Choose = Callable[[int], int]
#: Most seconds that pass at once although something could happen.
HASTE_MAX = 1.0


class KilledError(BaseException):
    """Raised in tasks of a worker that is killed; like KeyboardInterrupt, it is no Exception."""


class MemoryCluster:
    """The servers, the workers, and what is under way between them.

    Args:
        workers: number of slots.
        choose: chooses what happens next.
        servers: number of servers.
        bucket_elements: the most values in one array.
        lease: seconds of silence after which the servers go on without a worker; infinite: they
            wait.
        patience: seconds after which a worker gives up waiting; infinite: never, so that a wait in
            vain is found.
        maximum: events after which the run counts as one that never ends.
        haste: one in that many choices lets time pass, a second at most, although something could
            happen; 0: none.
        hosts: the ranks on each host whose workers exchange as one.

    Attributes:
        nodes: the servers.
        steps: number of events so far.
        now: seconds.
        history: descriptions of the events so far.
        stopped: servers that neither take nor answer anything.
        suspended: nonces of processes that stand still, so that they send no heartbeats.
        connected: nonce → address at which that process listens, as long as it is there.
    """

    def __init__(
        self,
        workers: int,
        choose: Choose,
        servers: int = 1,
        *,
        bucket_elements: int = config.BUCKET_ELEMENTS,
        lease: float = math.inf,
        patience: float = math.inf,
        maximum: int = 100_000,
        haste: int = 0,
        hosts: Sequence[Sequence[int]] = (),
    ) -> None:
        self.workers, self.bucket_elements, self.lease, self.patience = workers, bucket_elements, lease, patience
        self.nodes = [MemoryServer(shard, self) for shard in range(servers)]
        self.now, self.steps = 0.0, 0
        self.history: list[str] = []
        self.stopped: set[int] = set()
        self.suspended: set[int] = set()
        self.connected: dict[int, Address] = {}
        self.arrivals = 0  # of arrays and commands at servers
        self.holders: dict[int, int] = {}  # slot → nonce of its present process
        self.met: dict[int, set[int]] = defaultdict(set)  # number of a barrier → slots that have come to it
        self._choose, self._most, self._haste = choose, maximum, haste
        self._tasks: list[MemoryTask] = []
        self._running: MemoryTask | None = None
        self._planned: dict[int, list[Callable[[], object]]] = {}
        self._queues: dict[tuple[int, int], deque[Transmission]] = {}  # nonce, key → in this order
        self._processes = 0
        maximum = max(map(len, hosts), default=1)
        self.hosts = [MemoryHost(tuple(sorted(ranks)), maximum, self._note_arrival) for ranks in hosts]
        self.hub = greenlet.getcurrent()  # the greenlet that makes the cluster runs it

    # --- what a test says -------------------------------------------------------------------------

    def start(self, rank: int, work: Callable[["MemoryStore"], object]) -> "MemoryStore":
        """Start a worker process, or another one in the place of a dead one.

        Args:
            rank: its slot.
            work: the program that it runs, given its store.
        """
        self._processes += 1
        store = MemoryStore(self, rank, nonce=self._processes)
        self.holders[rank] = store.nonce
        name = f"worker {rank}" + f" (process {store.nonce})" * (self._processes > self.workers)
        self.spawn(name, store.nonce, lambda: work(store), fatal=True)
        return store

    def run_all(self, work: Callable[["MemoryStore"], Any]) -> list[Any]:
        """Start a worker process on every slot, see `run`, and return what their programs return, by rank."""
        results: dict[int, Any] = {}
        for rank in range(self.workers):
            self.start(rank, lambda store: results.update({store.rank: work(store)}))
        self.run()
        return [results.get(rank) for rank in range(self.workers)]

    def host_group(self, store: "MemoryStore") -> MemoryHostGroup | None:
        """Return what a worker process shares with the others of its host; None: nothing."""

        def wait(ready: Callable[[], bool], seconds: float) -> None:
            self.wait(ready, self.now + seconds)

        for host in self.hosts:
            if store.rank in host.ranks:
                return MemoryHostGroup(host, store.rank, store.nonce, self.pause, wait)
        return None

    def kill(self, rank: int) -> None:
        """End the worker process that holds a slot; see `kill_process`."""
        self.kill_process(self.holders[rank])
        self.history.append(f"worker {rank} is killed")

    def kill_process(self, nonce: int) -> None:
        """End a process as kill -9 does: of what it has sent, some arrives.

        Call it between two choices only.
        """
        for task in list(self._tasks):
            if task.owner == nonce:
                self._switch(task, KilledError())
        self.connected.pop(nonce, None)
        for host in self.hosts:
            host.end(nonce)
        for place, queue in list(self._queues.items()):
            if place[0] == nonce:
                arriving = self._choose(len(queue) + 1)
                for _ in range(len(queue) - arriving):
                    queue.pop()
                if not arriving:
                    del self._queues[place]

    def at(self, choice: int, call: Callable[[], object]) -> None:
        """Have a function called before that choice, counted from 0; never if the run is over."""
        self._planned.setdefault(choice, []).append(call)

    def run(self) -> None:
        """Let everything happen, until nothing is under way and all tasks have ended.

        Raises:
            DeadlockError: tasks wait for something that will never come.
            Exception: that of a worker or a server that has failed.
        """
        try:
            while self.steps < self._most:
                for call in self._planned.pop(self.steps, ()):
                    call()
                if not self._next():
                    return
                self.steps += 1
            raise DeadlockError(f"no end after {self._most} choices: {self._waiting()}")
        finally:
            for task in list(self._tasks):
                self._switch(task, KilledError())

    # --- what stores and tasks use ----------------------------------------------------------------

    @property
    def task(self) -> "MemoryTask":
        """The running task."""
        if self._running is None:
            raise RuntimeError("only a task can wait; this was called from outside MemoryCluster.run")
        return self._running

    def spawn(self, name: str, owner: int, work: Callable[[], object], fatal: bool = False) -> "MemoryTask":
        """Start a task of a process; where its errors are `fatal`, `run` raises them."""
        task = MemoryTask(self, name, owner, work, fatal)
        self._tasks.append(task)
        return task

    def meet(self, store: "MemoryStore", number: int) -> None:
        """Make a worker wait until every slot's has come to the barrier of that number."""
        met = self.met[number]
        met.add(store.rank)
        self.wait(lambda: len(met) == self.workers)

    def wait(self, ready: Callable[[], bool], wakes: float = math.inf) -> None:
        """Suspend the running task until `ready` returns True, or until the time `wakes`.

        Raises:
            ExchangeError: some wait of this task (`MemoryStore.waiting`) has lasted too long.
        """
        task = self.task
        if not ready():
            task.ready = ready
            task.wakes = min([wakes, *(wait.until for wait in task.waits)])
            self.hub.switch()
            if not ready():
                for wait in task.waits:
                    wait.check()

    def prompt(self, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return which of these (nonce, key) are not delayed.

        These are all of them, unless a subclass delays some. What is delayed arrives when nothing
        else can happen.
        """
        return places

    def pause(self) -> None:
        """Suspend the running task, so that others can go on first."""
        self.task.ready, self.task.wakes = lambda: True, math.inf
        self.hub.switch()

    def put(self, owner: int, key: int, flight: "Transmission") -> None:
        """Send something from a process, behind what it has sent under this key."""
        if self.task.killed:
            return
        self._queues.setdefault((owner, key), deque()).append(flight)

    def under_way(self, owner: int, key: int | None = None) -> bool:
        """Return whether something of a process is on its way, under this key or any."""
        if key is not None:
            return (owner, key) in self._queues
        return any(owner == nonce for nonce, _ in self._queues)

    # --- helpers ----------------------------------------------------------------------------------

    def _note_arrival(self) -> None:
        """Have workers that wait for an acknowledgement look again."""
        self.arrivals += 1

    def _next(self) -> bool:
        """Let one event happen; return whether there was any."""
        tasks = [task for task in self._tasks if self.now >= task.wakes or task.ready()]
        heads = [place for place, queue in self._queues.items() if queue[0].server not in self.stopped]
        if not tasks and not heads:
            return self._pass_time()
        prompt = self.prompt(heads)
        if tasks or prompt:
            heads = prompt
        if self._haste and self._choose(self._haste) == self._haste - 1:
            self._skip_time(HASTE_MAX)
            return True
        choice = self._choose(len(tasks) + len(heads))
        if choice < len(tasks):
            task = tasks[choice]
            self.history.append(f"{task.name} goes on")
            self._switch(task)
            if task.fatal and task.over and task.error is not None:
                raise task.error
            return True
        place = heads[choice - len(tasks)]
        flight = self._queues[place][0]
        self.history.append(flight.what)
        flight.steps.pop(0)()
        if not flight.steps:
            self._queues[place].popleft()
            if not self._queues[place]:
                del self._queues[place]
        return True

    def _pass_time(self) -> bool:
        if not self._tasks:
            return False
        if not self._skip_time():
            raise DeadlockError(f"deadlock at {self.now:.3f} s: {self._waiting()}")
        return True

    def _skip_time(self, maximum: float = math.inf) -> bool:
        """Let time pass until a task wakes, at most `maximum` seconds; return whether any wakes."""
        earliest = min((task.wakes for task in self._tasks if task.wakes > self.now), default=math.inf)
        if earliest < math.inf:
            self.now = min(earliest, self.now + maximum)
        return earliest < math.inf

    def _waiting(self) -> str:
        waits = ((task.name, [wait.what for wait in task.waits]) for task in self._tasks)
        return "; ".join(f"{name} waits for {', '.join(what) or 'its own work'}" for name, what in waits)

    def _switch(self, task: "MemoryTask", error: KilledError | None = None) -> None:
        if task.over:
            return
        self._running = task
        try:
            if error is None:
                task.resume()
            else:
                task.kill(error)
        finally:
            self._running = None
            if task.over:
                self._tasks.remove(task)


@dataclass(eq=False)
class Transmission:
    """Something between a worker and a server.

    Attributes:
        server: its number.
        what: description.
        steps: its events, one after the other; between them, others may happen.
    """

    server: int
    what: str
    steps: list[Callable[[], None]]


class MemoryServer:
    """One server, and what it keeps for each key.

    Args:
        shard: its number.
        cluster: has the time, and the connections.

    Attributes:
        endpoint: its end of the protocol.
        stored: key → the array with which pulls are answered.
    """

    def __init__(self, shard: int, cluster: MemoryCluster) -> None:
        def clock() -> float:
            return cluster.now

        def make_monitor(server: ParameterServer, lease: float) -> WorkerMonitor:
            return WorkerMonitor(server, lease, clock, Peers(lambda among: set(cluster.connected.values())))

        self.endpoint = Endpoint(shard, clock, make_monitor=make_monitor)
        self.stored: dict[int, np.ndarray] = {}

    def push(self, key: int, values: np.ndarray, init: bool = False) -> None:
        """Take an array; one that sets up a key (`init`) is ignored if the key has one already."""
        if key not in self.stored:
            self.stored[key] = values.copy()
        elif not init:
            stored = self.stored[key]
            if stored.size != values.size:
                raise ValueError(f"key {key} is bound to {stored.size} values, and {values.size} have come")
            received = values.copy()
            self.endpoint.push(key, received, stored)
            received.fill(np.nan)  # its memory belongs to the request, which is over


class MemoryTask:
    """A thread of a worker process; see `protocol.store.StoreTask`.

    Attributes:
        name: in messages.
        owner: nonce of the process.
        fatal: whether its errors end the run.
        waits: its waits, the innermost last.
        ready: returns whether it can go on.
        wakes: the time at which it goes on in any case.
        cancelled: whether its wait has been cancelled.
        killed: whether its process was killed.
        over: whether it has ended.
        error: the error with which it has failed.
    """

    def __init__(self, cluster: MemoryCluster, name: str, owner: int, work: Callable[[], object], fatal: bool) -> None:
        self.name, self.owner, self.fatal = name, owner, fatal
        self.waits: list[MemoryWait] = []
        self.ready: Callable[[], bool] = lambda: True
        self.wakes = math.inf
        self.cancelled = self.killed = self.over = False
        self.error: Exception | None = None
        self._cluster, self._work = cluster, work
        self._greenlet = greenlet.greenlet(self._run, parent=cluster.hub)

    def resume(self) -> None:
        """Let the task go on until it waits again."""
        self._greenlet.switch()

    def kill(self, error: KilledError) -> None:
        """Raise an error in the task, again and again where it waits once more."""
        self.killed = True
        if not self._greenlet:  # it has not begun
            self.over = True
        while not self.over:
            self._greenlet.throw(error)

    def done(self) -> bool:
        """See `StoreTask.done`."""
        return self.over

    def wait(self) -> None:
        """See `StoreTask.wait`."""
        self._cluster.wait(lambda: self.over)
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """See `StoreTask.cancel`."""
        self.cancelled = True
        self._cluster.wait(lambda: self.over)

    def _run(self) -> None:
        try:
            self._work()
        except KilledError:
            pass
        except Exception as error:
            self.error = error
        self.over = True


class MemoryWait:
    """A wait of a task; see `protocol.store.StoreWait`."""

    def __init__(self, cluster: MemoryCluster, what: str) -> None:
        self.what = what
        self.until = cluster.now + cluster.patience
        self._cluster = cluster

    def __enter__(self) -> "MemoryWait":
        self._cluster.task.waits.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.task.waits.remove(self)

    def check(self) -> None:
        """See `StoreWait.check`."""
        if self._cluster.now >= self.until:
            raise ExchangeError(f"gave up after {self._cluster.patience:g} s of waiting for {self.what}")


class MemoryStore(KeyedStore):
    """One worker process's store over the servers in memory.

    Args:
        cluster: the servers, and what is under way.
        rank: its slot.
        nonce: the process's own number.
        recovery: whether it takes the place of a dead one in a running cluster, as ps-lite has it:
            it sets up no keys that all workers share, and goes past all barriers.
    """

    carries_values = True
    replacement = math.inf

    def __init__(self, cluster: MemoryCluster, rank: int, nonce: int, recovery: bool = False) -> None:
        super().__init__()
        self.rank, self.nonce = rank, nonce
        self.workers, self.servers = cluster.workers, len(cluster.nodes)
        self.bucket_elements, self.lease = cluster.bucket_elements, cluster.lease
        self.first, self._recovery = rank == 0 and not recovery, recovery
        self.address = ":".join(map(str, cluster.connected.get(nonce, ())))
        self._cluster = cluster
        self._buffers: dict[int, np.ndarray] = {}
        self._meetings = 0
        self._progressed, self._closed = cluster.now, False

    def sizes(self, model: Mapping[str, int]) -> Mapping[str, int]:
        """See `Store.sizes`."""
        return model

    # --- time, and what goes on beside ------------------------------------------------------------

    def now(self) -> float:
        """See `Store.now`."""
        return self._cluster.now

    def sleep(self, seconds: float) -> None:
        """See `Store.sleep`."""
        until = self._cluster.now + seconds
        self._cluster.wait(lambda: self._cluster.now >= until, until)

    def inject_delay(self) -> None:
        """See `Store.inject_delay`; the scheduler delays messages anyway."""

    def spawn(self, work: Callable[[], None]) -> MemoryTask:
        """See `Store.spawn`."""
        return self._cluster.spawn(f"{self._cluster.task.name}, beside", self.nonce, work)

    def start_heartbeats(self, beat: Callable[[], None]) -> None:
        """See `Store.start_heartbeats`; a task of the same process sends them."""
        cluster = self._cluster
        program = cluster.task

        def work() -> None:
            while not (self._closed or program.over):
                if self.nonce not in cluster.suspended and cluster.now < self._progressed + cluster.patience / 2:
                    beat()
                self.sleep(heartbeat_interval(self.lease))

        cluster.spawn(f"{program.name}, heartbeats", self.nonce, work)

    def progressed(self) -> None:
        """See `Store.progressed`."""
        self._progressed = self._cluster.now

    def waiting(self, what: str) -> MemoryWait:
        """See `Store.waiting`."""
        return MemoryWait(self._cluster, f"{what} the parameter server(s)")

    # --- arrays and messages ----------------------------------------------------------------------

    def command(self, command: Command) -> None:
        """See `Store.command`."""
        text = command.encode()
        for server in range(self.servers):
            self._put(-1 - server, server, "a command", lambda node: node.endpoint.command(decode(text)))
        self._cluster.wait(lambda: not any(self._under_way(-1 - server) for server in range(self.servers)))

    def buffer(self, key: int, elements: int) -> np.ndarray:
        """See `Store.buffer`."""
        buffer = self._buffers.setdefault(key, np.zeros(elements, np.float32))
        if buffer.size != elements:
            raise ValueError(f"key {key} is bound to {buffer.size} values, not {elements}")
        return buffer

    def release(self, keys: Collection[int]) -> None:
        """See `Store.release`."""
        for key in keys:
            self._buffers.pop(key, None)

    def flush(self) -> None:
        """See `Store.flush`."""
        self._cluster.wait(lambda: not self._cluster.under_way(self.nonce))

    def await_acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status]:
        """See `Store.await_acknowledged`; it polls again when something has reached a server."""
        cluster, seen = self._cluster, list[Status]()
        task = cluster.task
        with self.waiting("the other workers' commits at") as wait:
            while True:
                arrivals = cluster.arrivals
                if (status := self._poll(sequence, check, seen)) is None:
                    return seen
                wait.what = awaited(status)
                # With a lease, a waiting worker has to send a heartbeat now and then.
                until = cluster.now + heartbeat_interval(self.lease) if self.lease < math.inf else math.inf
                cluster.wait(lambda before=arrivals: task.cancelled or cluster.arrivals != before, until)
                if task.cancelled:
                    raise CancelledError

    def close(self, message: Mapping[str, object] | None) -> None:
        """See `Store.close`."""
        self._closed = True
        if self._handshake_sent and message is not None:
            for server in range(self.servers):
                self.send(server, (), message)

    # --- the key store ----------------------------------------------------------------------------

    def _init(self, keys: Sequence[int]) -> None:
        """See `KeyedStore._init`; rank 0's arrays are ignored where there are some already."""
        if self.first:
            for key in keys:
                self._send(key, self._buffers[key], init=True)
            self.flush()
        self._meet()

    def _meet(self) -> None:
        """See `KeyedStore._meet`."""
        self._meetings += 1
        if not self._recovery:
            with self.waiting("the other workers to come to"):
                self._cluster.meet(self, self._meetings)

    def _push(self, key: int) -> None:
        """See `KeyedStore._push`."""
        self._send(key, self._buffers[key])

    def _push_message(self, server: int, message: np.ndarray) -> None:
        """See `KeyedStore._push_message`."""
        self._send(server, message)

    def _pull(self, key: int) -> None:
        """See `KeyedStore._pull`; the answer has what is stored when the request arrives."""
        buffer, answer = self._buffers[key], np.empty_like(self._buffers[key])
        self._put(
            key,
            key % self.servers,
            f"a pull of key {key}",
            lambda node: np.copyto(answer, node.stored[key]),
            lambda _: np.copyto(buffer, answer),
        )

    def _pulled(self, key: int) -> np.ndarray:
        """See `KeyedStore._pulled`."""
        self._cluster.wait(lambda: not self._under_way(key))
        return self._buffers[key]

    def _send(self, key: int, array: np.ndarray, init: bool = False) -> None:
        sent = array.copy()  # it has left: the buffer is the caller's again
        self._put(key, key % self.servers, f"an array of key {key}", lambda node: node.push(key, sent, init))

    def _put(self, key: int, server: int, what: str, *steps: Callable[["MemoryServer"], object]) -> None:
        """Send something that is an event at a server; a second step is the answer's arrival."""
        cluster, node = self._cluster, self._cluster.nodes[server]

        def arrive(step: Callable[["MemoryServer"], object]) -> None:
            step(node)
            cluster.arrivals += len(steps) == 1  # a pull changes nothing

        cluster.put(
            self.nonce,
            key,
            Transmission(server, f"{what} of worker {self.rank}", [lambda step=step: arrive(step) for step in steps]),
        )

    def _under_way(self, key: int) -> bool:
        return self._cluster.under_way(self.nonce, key)
