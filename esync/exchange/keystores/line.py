"""A worker's line to MXNet's parameter servers: who it is, what it tells them, and what their status says."""

import atexit
import ctypes
import math
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from ... import config
from ...engine import mx
from ...environment import SLOT_VARIABLE, Cluster
from ...errors import ExpectedError
from ...liveness.connections import listening, raise_file_limit
from ...liveness.monitor import monitor_servers
from ...rendezvous import directory
from ...rendezvous.messages import SERVER
from ...rendezvous.roster import worker_id
from ...watchdog import Watchdog
from ..base import JobAbortedError, SlotLostError
from ..protocol import wire
from ..protocol.greeting import COMMAND
from .doorkeeper import Doorkeeper


class SecondTrainerError(ExpectedError):
    """MXNet's parameter servers know one worker per process."""


#: What to do about a scheduler that does not say who belongs to the cluster.
OWN_SCHEDULER = "run python -m esync.scheduler of this version there: MXNet's own scheduler will not do"

#: The line of this process: ps-lite keeps one cluster in memory. One that was left is kept until another one is wanted.
_lines: list["Line"] = []


class Line:
    """The key store, and the messages of this worker that go over it.

    Args:
        cluster: where the scheduler is, and how many processes of each role there are.
        watchdog: speaks up when something takes long.
        start_timeout: seconds to wait for the other processes of the cluster to appear.
        round_timeout: seconds to wait for the servers and the other workers in one exchange.
        lease: seconds of silence after which the servers go on without a worker; infinite: they wait.
        hold: called before a payload, a poll or the request for a model leaves; may wait.

    Raises:
        SecondTrainerError: this process takes part in a cluster already, or has left this one.

    Attributes:
        store: MXNet's key store.
        rank: this worker's slot.
        workers: number of slots.
        servers: number of servers.
        nonce: a number of this process only.
        address: where this worker listens, host:port, as the others know it.
        sequence: number of the exchange under way, from 1.
        lease: as given.
        hold: as given.
    """

    def __init__(
        self,
        cluster: Cluster,
        watchdog: Watchdog,
        start_timeout: float,
        round_timeout: float,
        lease: float,
        hold: Callable[[], None] = lambda: None,
    ) -> None:
        _make_room(cluster)
        raise_file_limit()
        self.lease, self.hold = lease, hold
        self._cluster, self._closed = cluster, False
        self._watchdog, self._round_timeout = watchdog, round_timeout
        # Buckets are this project's own way of cutting arrays; MXNet must not split them once more.
        os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(2**31 - 1)
        self._doorkeeper = Doorkeeper(listening())
        self._doorkeeper.start()
        with watchdog.waiting(cluster.everyone, start_timeout, Cluster.ADVICE):
            self.store = mx.kv.create("dist_async")
        _lines.append(self)
        with watchdog.waiting(f"the scheduler at {cluster.host}:{cluster.port}", start_timeout, OWN_SCHEDULER) as wait:
            members = directory.members(cluster.address, cluster.port, wait.check)
        self.workers: int = self.store.num_workers
        # A newcomer has a new rank in MXNet (see rendezvous.roster), which leads to the slot that it takes over; where
        # several workers have died, only who has started it knows which of them it stands for.
        slot = os.environ.get(SLOT_VARIABLE) if self.store.rank >= self.workers else None
        self.rank: int = int(slot or self.store.rank) % self.workers
        self.servers = cluster.servers
        self.nonce = secrets.randbits(62) + 1
        self.sequence = 0
        me = members[worker_id(self.store.rank)]
        self.address = f"{me.host}:{me.port}"
        self._doorkeeper.settle(me.port)
        servers = [(node.host, node.port) for node in members.values() if node.role == SERVER]
        self._monitor = monitor_servers((cluster.address, cluster.port), servers)
        self._monitor.start()
        self._lock = threading.Lock()
        self._met = False
        self._spoke = 0.0
        self._message_elements = wire.message_elements(self.workers)
        self._status_type = wire.status_type(self.workers)
        self._status_array = mx.nd.zeros((self._message_elements,), ctx=mx.cpu())

    def patience(self, what: str, hint: str = "is every server process still running?") -> Any:
        """Watch over a with statement that waits for the servers."""
        return self._watchdog.waiting(f"{what} the parameter server(s)", self._round_timeout, hint)

    def greet(self, greeting: str, meet: Callable[[], None]) -> list[Any]:
        """Tell all servers who this is; their statuses. At the first time `meet` sets further keys up."""
        with self.patience("the greeting of"):
            self.command(greeting)
            if not self._met:
                # MXNet puts a key equal to the shard's number on that server, see `layout.Layout.status_key`.
                keys = list(range(self.servers))
                self.store.init(keys, [mx.nd.zeros((self._message_elements,)) for _ in keys])
                meet()
                self._met = True
            self.say(wire.NOTHING)
            mx.nd.waitall()
        return self.statuses()

    def command(self, text: str) -> None:
        """Send a command, JSON, to all servers."""
        self.store._send_command_to_servers(COMMAND, text)

    def say(self, kind: int, **fields: Any) -> None:
        """Send a message to all servers; before the greeting they know nobody, and MXNet would end them."""
        if not self._met:
            return
        self._spoke = time.monotonic()
        for shard in range(self.servers):
            self.say_to(shard, kind, **fields)

    def say_to(self, shard: int, kind: int, **fields: Any) -> None:
        """Send a message to one server; does not wait."""
        record = wire.message(kind, rank=self.rank, nonce=self.nonce, sequence=self.sequence, **fields)
        packed = wire.pack(record, self._message_elements)
        self.push(shard, mx.nd.array(packed, dtype="float32"))

    def push(self, key: int, array: Any) -> None:
        """Send an array; does not wait. From any thread, as `pull`: MXNet's key store is for one at a time."""
        with self._lock:
            self.store.push(key, array)

    def pull(self, key: int, array: Any) -> None:
        """Ask for an array; does not wait."""
        with self._lock:
            self.store.pull(key, array)

    def heartbeat(self) -> None:
        """See `Exchange.heartbeat`."""
        if self.lease < math.inf and time.monotonic() - self._spoke > min(self.lease / 4, config.HEARTBEAT_EVERY):
            self.say(wire.NOTHING)

    def statuses(self) -> list[Any]:
        """Of all servers."""
        return [self.status(shard) for shard in range(self.servers)]

    def status(self, shard: int) -> Any:
        """The current status of a server (wire.status_type).

        Raises:
            JobAbortedError: some worker has ended the run because it failed.
            SlotLostError: this process has been declared dead.
        """
        self.hold()
        with self.patience("the status of"):
            self.pull(shard, self._status_array)
            packed = self._status_array.asnumpy()
        status = wire.unpack(packed, self._status_type)
        if status["aborted"]:
            raise JobAbortedError(bytes(status["text"]).decode())
        if status["nonce"][self.rank] != self.nonce:
            raise SlotLostError(f"another process has taken over the slot of worker {self.rank}")
        if self.lease < math.inf and not status["member"][self.rank]:
            raise SlotLostError(
                f"worker {self.rank} was not heard for {self.lease:g} s, and the others have gone on without it; "
                "start it again to take the slot back, with a longer --lease if its iterations take longer than that"
            )
        return status

    def close(self, over: bool) -> None:
        """Say goodbye and let go of the key store; does not wait for the other workers.

        Args:
            over: whether the whole run is over, as far as this worker has been told.
        """
        if self._closed:
            return
        self._closed = True
        self._monitor.close()
        with self.patience("the goodbye to"):
            self.say(wire.DONE if over else wire.LEAVE)
            mx.nd.waitall()
        mx.base.check_call(mx.base._LIB.MXKVStoreSetBarrierBeforeExit(self.store.handle, ctypes.c_int(0)))


def _make_room(cluster: Cluster) -> None:
    """Let go of a cluster that this process has left; SecondTrainerError where there is no way to join another one."""
    for line in _lines:
        old = line._cluster
        if not line._closed:
            raise SecondTrainerError(
                f"this process trains with the cluster of the scheduler at {old.host}:{old.port} already: one Trainer "
                "per process; train all parameters with one Trainer (give it those of all networks), start a process "
                "of its own for the other one, or close the first one (Trainer.close) and begin the next job"
            )
        if (old.address, old.port) == (cluster.address, cluster.port):
            raise SecondTrainerError(
                f"this process has left the job of the scheduler at {old.host}:{old.port}, and cannot come back: start "
                "another process, or the next job with a scheduler at another port (DMLC_PS_ROOT_PORT)"
            )
    _let_go()


@atexit.register
def _let_go() -> None:
    """Free the key stores that were left, which ends ps-lite's threads: MXNet aborts where they outlive Python."""
    for line in _lines:
        if line._closed:
            line._doorkeeper.over()
            line.store = None
