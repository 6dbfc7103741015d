"""The worker's end of MXNet's key store."""

import atexit
import ctypes
import logging
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from typing_extensions import override

from ... import config
from ...membership.connections import listening, raise_file_limit
from ...membership.heartbeats import LAST_ANSWER, Heartbeats
from ...membership.monitor import SCHEDULER, give_up, monitor_servers
from ...membership.rendezvous import directory, messages
from ...membership.rendezvous.directory import StartMonitor
from ...membership.rendezvous.listening_port import reserved_port
from ...membership.rendezvous.messages import SERVER
from ...membership.rendezvous.node_registry import worker_id
from ...membership.rendezvous.rank_request import asking, requested_rank
from ...runtime import distributed_stores
from ...runtime.environment import Cluster
from ...runtime.errors import ExpectedError
from ...runtime.exit_hooks import interactive
from ...runtime.futures import BackgroundTask
from ...runtime.mxnet_arrays import host_view
from ...runtime.mxnet_import import mx
from ...runtime.processes import bind_children
from ...runtime.progress import WITHOUT_FINAL_MODEL
from ...runtime.watchdog import Watchdog, ending_on_interrupt, exit_now
from ..protocol.handshake import COMMAND, Command
from ..protocol.status import Status, awaited
from ..protocol.store import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PAUSE_GROWTH,
    ArraySpec,
    CancelledError,
    StoreWait,
    heartbeat_interval,
)
from .keyed import KeyedStore
from .sender_check import SenderCheck

log = logging.getLogger(__name__)


class SecondTrainerError(ExpectedError):
    """A process has made a second Trainer; MXNet supports one worker per process."""


#: Hint for a scheduler that does not return the members of the cluster.
SCHEDULER_HINT = "run python -m esync.scheduler of this version there: MXNet's own scheduler will not do"

#: The store of this process, at most one, because ps-lite supports one cluster. A closed store is
#: kept until the next one is made.
_stores: list["MXNetStore"] = []


class MXNetStore(KeyedStore):
    """MXNet's distributed key store, in asynchronous mode.

    Every key has one array, which is sent from and received into.

    Args:
        cluster: the address of the scheduler, and the number of processes of each role.
        watchdog: warns of long waits.
        start_timeout: seconds to wait for the other processes of the cluster to start.
        round_timeout: seconds to wait for the servers and the other workers in one exchange.
        lease: seconds of silence after which the servers go on without a worker; infinite: they
            wait for it or its replacement.
        replacement: seconds that the servers wait for a replacement once this process is gone.
        inject_delay: called before a payload, a poll or a request for the model is sent; may wait.

    Raises:
        EnvironmentProblemError: the rank in the environment does not exist.
        SecondTrainerError: this process is in a cluster already, or has left this one.

    Attributes:
        store: MXNet's key store.
    """

    carries_values = True
    bucket_elements = config.BUCKET_ELEMENTS

    def __init__(
        self,
        cluster: Cluster,
        watchdog: Watchdog,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
        lease: float = math.inf,
        replacement: float = config.WAIT_FOR_REPLACEMENT,
        inject_delay: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        _close_earlier_stores(cluster)
        raise_file_limit()
        bind_children()
        self.lease, self.replacement, self._inject_delay = lease, replacement, inject_delay
        self._cluster, self._closed = cluster, False
        self._process = os.getpid()
        self._watchdog, self._round_timeout = watchdog, round_timeout
        # MXNet must not split the buckets into smaller arrays.
        os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(2**31 - 1)
        self._sender_check = SenderCheck(listening())
        self._sender_check.start()
        self._scheduler = cluster.address, cluster.port
        self._start_monitor = start = StartMonitor(cluster)
        start.start()
        with ExitStack() as request:
            requested = requested_rank(cluster.workers)
            request.enter_context(reserved_port())
            if requested is not None:
                with watchdog.waiting(cluster.scheduler, start_timeout, Cluster.ADVICE) as wait:
                    request.enter_context(asking(cluster, requested, wait.check))
            with watchdog.waiting(start.awaited, start_timeout, start.advice), ending_on_interrupt():
                self.store = distributed_stores.create(mx, "dist_async")
        _stores.append(self)
        with watchdog.waiting(cluster.scheduler, start_timeout, SCHEDULER_HINT) as wait:
            members = directory.members(self._scheduler, wait.check)
        self.workers: int = self.store.num_workers
        self.first = self.store.rank == 0
        # A replacement has a new rank in MXNet, which is equal to that of its slot modulo the number
        # of workers (see `rendezvous.node_registry`); if several workers have died, its environment
        # determines the slot.
        slot = requested if self.store.rank >= self.workers else None
        self.rank: int = (self.store.rank if slot is None else slot) % self.workers
        self.servers = cluster.servers
        self.nonce = secrets.randbits(62) + 1
        self._me = members[worker_id(self.store.rank)]
        self.address = f"{self._me.host}:{self._me.port}"
        self._sender_check.settle(self._me.port)
        servers = [node.address for node in members.values() if node.role == SERVER]
        self._monitor = monitor_servers(self._scheduler, servers, self._on_disconnect)
        self._monitor.start()
        self._heartbeats = Heartbeats(heartbeat_interval(lease), round_timeout / 2)
        self._lock = threading.Lock()
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}  # key → MXNet's array, and a view of its memory
        self._cancelled = False
        self._waits: list[str] = []  # descriptions of the present waits
        self._lost_server = ""  # the server whose connection has ended after the end of the run

    @override
    def sizes(self, model: Mapping[str, int]) -> Mapping[str, int]:
        return model

    # --- time and background tasks ----------------------------------------------------------------

    @override
    def now(self) -> float:
        return time.perf_counter()

    @override
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @override
    def inject_delay(self) -> None:
        self._inject_delay()

    def spawn(self, work: Callable[[], None]) -> BackgroundTask:
        """See `Store.spawn`; there is one task at a time."""
        self._cancelled = False
        return BackgroundTask(work, self._cancel)

    @override
    def start_heartbeats(self, beat: Callable[[], None]) -> None:
        self._heartbeats.start(beat)

    @override
    def progressed(self) -> None:
        self._heartbeats.progressed()

    @contextmanager
    def waiting(self, what: str) -> Iterator[StoreWait]:
        """See `Store.waiting`; the hint names the processes that the scheduler waits for."""
        self._waits.append(what)
        try:
            if self._lost_server:
                self._give_up(self._lost_server)
            with self._watchdog.waiting(f"{what} the parameter server(s)", self._round_timeout, self._advice) as wait:
                yield wait
        finally:
            self._waits.pop()

    # --- arrays and messages ----------------------------------------------------------------------

    @override
    def command(self, command: Command) -> None:
        self.store._send_command_to_servers(COMMAND, command.encode())

    @override
    def buffer(self, key: int, elements: int) -> np.ndarray:
        if key not in self._arrays:
            array = mx.nd.zeros((elements,), ctx=mx.cpu())
            mx.nd.waitall()
            self._arrays[key] = array, host_view(array)
        array, view = self._arrays[key]
        if view.size != elements:
            raise ValueError(f"key {key} is bound to {view.size} values, not {elements}")
        if key in self._doubled:
            # The exchange may have ended with the first of the two arrays. MXNet has to read the
            # second one before the buffer changes.
            mx.base.check_call(mx.base._LIB.MXNDArrayWaitToWrite(array.handle))
            self._doubled.discard(key)
        return view

    def init_shared(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """See `Store.init_shared`; the run starts with it."""
        super().init_shared(specs)
        if not self._start_monitor.closed:
            self._start_monitor.close()
            directory.notify(self._scheduler, messages.BEGUN, self._me)

    @override
    def release(self, keys: Collection[int]) -> None:
        for key in keys:
            self._arrays.pop(key, None)

    @override
    def flush(self) -> None:
        mx.nd.waitall()

    def await_acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status]:
        """See `Store.await_acknowledged`; it polls with growing pauses."""
        pause, acknowledged = FIRST_PAUSE, list[Status]()
        with self.waiting("the other workers' commits at") as wait:
            while (status := self._poll(sequence, check, acknowledged)) is not None:
                if self._cancelled:
                    raise CancelledError
                wait.what = awaited(status)
                wait.check()
                time.sleep(pause)
                pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
        return acknowledged

    @override
    def close(self, message: Mapping[str, Any] | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._heartbeats.close()
        if not (self.finished and self._without_servers()):
            with self.waiting("the goodbye to reach"):
                if self._handshake_sent and message is not None:
                    for server in range(self.servers):
                        self.send(server, (), message)
                self._answered()
            if self.finished and message is not None:  # after the messages to the servers, which wait for them
                directory.notify(self._scheduler, messages.DONE, self._me)
        self._monitor.close()
        mx.base.check_call(mx.base._LIB.MXKVStoreSetBarrierBeforeExit(self.store.handle, ctypes.c_int(0)))

    # --- helpers ----------------------------------------------------------------------------------

    def _advice(self) -> str:
        """Return which processes the cluster waits for, and what to do about it."""
        attendance = directory.attendance(self._scheduler)
        if attendance is None:
            return f"{self._cluster.scheduler} does not answer"
        missing = f"the cluster waits for {attendance.missing}" if attendance.missing else ""
        return "; ".join(filter(None, (missing, attendance.advice)))

    def _answered(self) -> bool:
        """Wait for the servers' answers to everything that was sent.

        Returns:
            Whether all have answered; False if a server is gone, for which MXNet would wait forever.
        """
        waiting = threading.Thread(target=mx.nd.waitall, name="answers", daemon=True)
        try:
            waiting.start()
        except RuntimeError:  # Python 3.12 starts no threads at the end of a program
            if not self._lost_server:
                mx.nd.waitall()
            return not self._lost_server
        while waiting.is_alive() and not self._lost_server:
            waiting.join(LONGEST_PAUSE)
        waiting.join(LAST_ANSWER)
        return not waiting.is_alive()

    def _without_servers(self) -> bool:
        """Return whether a server is gone, which would never answer."""
        return any(not process.startswith(SCHEDULER) for process in self._monitor.absent())

    def _on_disconnect(self, process: str) -> None:
        """End this process if it needs the server or the scheduler that is gone."""
        if self.finished:
            server = not process.startswith(SCHEDULER)
            if server:
                self._lost_server = process
            if not server or self._closed or not self._waits:
                log.info("%s is gone; the run is finished, so this worker does without it", process)
                return
        self._give_up(process)

    def _give_up(self, process: str) -> None:
        if self.finished or not directory.is_over(self._scheduler):
            give_up(f"{process} is gone: its connection has ended; without it this worker cannot go on")
        if self.rank == 0:
            give_up(f"the run is finished, but worker 0 was not there in the end: {WITHOUT_FINAL_MODEL}")
        log.info("the run is finished, without this worker")
        exit_now(0)

    def _init(self, keys: Sequence[int]) -> None:
        """See `KeyedStore._init`; a barrier, except for a replacement in a running job."""
        with self._lock, ending_on_interrupt():
            self.store.init(list(keys), [self._arrays[key][0] for key in keys])

    @override
    def _meet(self) -> None:
        if self.store.rank < self.workers:
            with ending_on_interrupt():
                self.store._barrier()

    def _push(self, key: int) -> None:
        """See `KeyedStore._push`; for any thread, like the others, because a lock is held."""
        with self._lock:
            self.store.push(key, self._arrays[key][0])

    @override
    def _pull(self, key: int) -> None:
        with self._lock:
            self.store.pull(key, self._arrays[key][0])

    @override
    def _pulled(self, key: int) -> np.ndarray:
        array, view = self._arrays[key]
        array.wait_to_read()
        return view

    @override
    def _push_message(self, server: int, message: np.ndarray) -> None:
        with self._lock:
            self.store.push(server, mx.nd.array(message, dtype="float32"))

    def _cancel(self) -> None:
        self._cancelled = True


def _close_earlier_stores(cluster: Cluster) -> None:
    """Free the store of a cluster that this process has left.

    Raises:
        SecondTrainerError: this process cannot join the new cluster.
    """
    for store in _stores:
        old = store._cluster
        if not store._closed:
            if interactive():
                raise SecondTrainerError(
                    f"the cluster of the scheduler at {old.host}:{old.port} knows this process already, by a Trainer "
                    "that was made before: go on with that one (keep the cell that makes it apart from the one that "
                    "is run again), or close it and restart the kernel and the cluster to begin anew"
                )
            raise SecondTrainerError(
                f"this process trains with the cluster of the scheduler at {old.host}:{old.port} already: one Trainer "
                "per process; train further networks with optimizers of the same Trainer (Trainer.add_optimizer), "
                "start a process of its own for the other one, or close the first one (Trainer.close) and begin the "
                "next job"
            )
        if (old.address, old.port) == (cluster.address, cluster.port):
            raise SecondTrainerError(
                f"this process has left the job of the scheduler at {old.host}:{old.port}, and cannot come back: start "
                "another process, or the next job with a scheduler at another port (DMLC_PS_ROOT_PORT); the folds of a "
                "cross-validation are jobs: esync launch FILE --repeat K -- python train.py --fold {seed}"
            )
    _free_stores()


@atexit.register
def _free_stores() -> None:
    """Free the key stores, which ends ps-lite's threads; MXNet aborts if they outlive Python.

    A program that exits without closing its store sends no goodbye, so the others consider this
    worker dead.
    """
    for store in _stores:
        if store._process != os.getpid():
            _exit_without_destructors(store)
            continue
        store.close(None)
        if store._lost_server and not store._answered():
            log.error(
                "error: %s is gone, and MXNet would wait for it for ever: ending, with all work done",
                store._lost_server,
            )
            exit_now(1)
        if store._closed:
            store._sender_check.over()
            store.store = None


def _exit_without_destructors(store: "MXNetStore") -> None:
    """Let this process, which was forked from the worker that owns the store, exit silently.

    MXNet's destructors would contact the others, and wait for threads that do not exist in a forked
    process.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store.store))
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # called first, with the exit code
