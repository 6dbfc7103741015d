"""The server's end of MXNet's key store, which passes pushes and commands to `ParameterServer`.

ps-lite runs in asynchronous mode, in which it does not sum, count or wait. MXNet calls the
controller (commands) and the updater (pushes) one at a time on the main thread, and answers pulls
from the stored arrays in between, so no pull returns a partially written bucket.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from ... import config
from ...membership.peers import OutgoingConnections, Peers
from ...membership.rendezvous import directory, messages
from ...membership.rendezvous.directory import StartMonitor
from ...membership.rendezvous.node_registry import server_id
from ...rules import Rule, Step
from ...runtime import progress
from ...runtime.environment import Cluster
from ...runtime.mxnet_arrays import host_view
from ...runtime.mxnet_import import mx
from ...runtime.program import exit_now
from ...runtime.watchdog import WatchedWait
from ..protocol.endpoint import Endpoint
from ..protocol.handshake import Handshake, decode
from ..protocol.parameter_server import ParameterServer
from ..protocol.payload_staging import Memory
from ..worker_monitor import WRITER, WorkerMonitor

log = logging.getLogger(__name__)

#: Seconds between two checks of which workers have not sent a goodbye.
TICK = 0.25
#: Seconds between the last worker's goodbye and the end of the process, for the answer to reach it.
FAREWELL = 1.0


class DeviceMemory:
    """Working memory of a parameter server on a GPU (flag -g).

    See `protocol.payload_staging.Memory`.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def stage(self, values: np.ndarray) -> Any:
        """Return a copy on the GPU, after which `values` may change."""
        copy = mx.nd.array(values, ctx=self._context, dtype=np.float32)
        copy.wait_to_read()
        return copy

    def to_array(self, values: np.ndarray) -> Any:
        """Return a copy on the GPU."""
        return self.stage(values)

    def add(self, total: Any, values: Any, factor: float) -> None:
        """Multiply and add on the GPU."""
        if factor != 1:
            values *= factor
        total += values

    def update(self, rule: Rule, weights: Any, value: Any, state: Any, step: Step, divisor: float) -> tuple[Any, Any]:
        """Run the rule on the GPU."""
        if divisor != 1:
            value /= divisor
        return rule(weights, value, state, step)

    def undo_rounding(self, new: Any, before: Any, tolerance: float) -> None:
        """See `protocol.payload_staging.Memory.undo_rounding`."""
        new[:] = mx.nd.where(mx.nd.abs(new - before) <= tolerance * mx.nd.abs(before), before, new)

    def fetch(self, array: Any) -> np.ndarray:
        """Return the values in host memory."""
        return array.asnumpy()

    def release(self, arrays: Iterable[Any]) -> None:
        """Do nothing; MXNet's memory pool keeps the blocks."""


class KVStoreServer(mx.kvstore.kvstore_server.KVStoreServer):
    """Runs one parameter server until every worker has left.

    Args:
        kvstore: made with mx.kv.create("dist_async") in a process whose DMLC_ROLE is server.
        memory: in which payloads are staged and added up.
        outgoing: the connections to the scheduler and to each worker; ps-lite opens no others.
        cluster: has the address of the scheduler.
        round_timeout: seconds that workers other than the first have for their goodbye when the run
            is over.

    Attributes:
        start_monitor: monitors the start of the cluster.
    """

    def __init__(
        self,
        kvstore: Any,
        memory: Memory,
        outgoing: OutgoingConnections,
        cluster: Cluster,
        round_timeout: float = config.ROUND_TIMEOUT,
    ) -> None:
        super().__init__(kvstore)
        self._round_timeout = round_timeout
        self._memory, self._outgoing, self._scheduler = memory, outgoing, (cluster.address, cluster.port)
        self._worker_monitor: WorkerMonitor | None = None
        self.start_monitor = StartMonitor(cluster, announces=True)
        self.start_monitor.start()
        self._ending = self._over = False

    def patience(self) -> float:
        """Return the seconds to wait for replacements when no worker is left; for any thread."""
        return config.PEER_TIMEOUT if self._worker_monitor is None else self._worker_monitor.patience

    def alone(self) -> None:
        """End the process, because no worker is left and none is expected; for any thread."""
        if self._worker_monitor is not None and self._endpoint.server.round_state.over:
            self._leave()
        for reason in [] if self._worker_monitor is None else self._worker_monitor.failure_reasons():
            log.error("%s", reason)
        reason = "all workers are gone, without a goodbye"
        if not self.start_monitor.closed:  # no worker had come
            reason = self.start_monitor.scheduler_lost
        directory.end(reason)

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        """Return MXNet's hook for commands; `run` installs it."""
        return _or_exit(lambda head, body, _: self._on_command(body))

    @functools.cached_property
    def _endpoint(self) -> Endpoint:
        """The server's end of the protocol, made with the first command, after MXNet knows the rank."""
        self.kvstore._set_updater(_or_exit(self._on_push))
        return Endpoint(self.kvstore.rank, time.monotonic, self._memory, self._make_monitor)

    def _on_command(self, body: bytes) -> None:
        self.start_monitor.close()  # all processes have reached ps-lite's start barrier
        command = decode(body)
        self._endpoint.command(command)
        if isinstance(command, Handshake):
            log.info("worker %d is here", command.rank)

    def _on_push(self, key: int | str, received: Any, stored: Any) -> None:
        self._endpoint.push(int(key), host_view(received), host_view(stored))
        round_state = self._endpoint.server.round_state
        if round_state.can_exit and not self._ending:
            self._ending = True
            threading.Thread(target=self._leave, name="farewell").start()
        elif round_state.over and not self._over:
            self._over = True
            threading.Thread(target=self._await_goodbyes, name="goodbyes", daemon=True).start()

    def _make_monitor(self, server: ParameterServer, lease: float) -> WorkerMonitor:
        """Return a monitor of the workers' connections and messages."""
        peers: Peers[int] = Peers(lambda among: self._outgoing.established)
        self._worker_monitor = WorkerMonitor(server, lease, time.monotonic, peers)
        return self._worker_monitor

    def _await_goodbyes(self) -> None:
        """Log which workers are awaited when the run is over, and leave without those that hang.

        There is no limit for the first worker, which evaluates and writes the final model.
        """
        round_state, wait = self._endpoint.server.round_state, WatchedWait("", self._round_timeout)
        while True:
            time.sleep(TICK)
            missing = [
                rank for rank in range(round_state.slots) if round_state.member[rank] or rank in round_state.promised
            ]
            if WRITER not in missing and wait.lasted > wait.limit:
                break
            wait.what = f"the goodbye of worker {', '.join(map(str, missing))}"
            if missing and wait.due(config.ANNOUNCE_AFTER):
                log.warning("the run is over; waiting for %s for %.0f s", wait.what, wait.lasted)
        log.error("%s: the run is over without it", wait.verdict())
        self._leave()

    def _leave(self) -> None:
        """End the process, because the run is over."""
        round_state = self._endpoint.server.round_state
        failure = round_state.failure
        if round_state.decides and round_state.contributed:
            for rank in sorted(set(range(round_state.slots)) - round_state.contributed):
                log.warning("worker %d has contributed nothing to the model of this run", rank)
            progress.report_event(progress.CONTRIBUTED, ranks=sorted(round_state.contributed))
        if failure:
            progress.report_event(progress.OVER, reason=failure, consequence=True)
        else:
            with suppress(_SchedulerLostError):
                node = directory.members(self._scheduler, _give_up)[server_id(self.kvstore.rank)]
                directory.notify(self._scheduler, messages.OVER, node)
        time.sleep(FAREWELL)
        log.info("all workers have left%s", f": {failure}" if failure else "")
        exit_now(1 if failure else 0)


class _SchedulerLostError(Exception):
    """The scheduler does not answer, so no worker can join any more."""


def _give_up() -> None:
    raise _SchedulerLostError


def _or_exit(call: Callable[..., None]) -> Callable[..., None]:
    """Return a callback whose errors end the process; MXNet would ignore them, and all would wait."""

    def guarded(*arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            log.exception("the parameter server failed")
            exit_now(1)

    return guarded
