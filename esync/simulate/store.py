"""A worker's store in virtual time: the protocol's steps over the modelled network.

At the other end are the real parameter servers.

A payload with its commit is one transfer, and so is a server's answer. Polls are not simulated one by
one: `acknowledgement` computes when a worker learns that its payload was used. If the exchanged model
represents a larger one, transfers have the sizes of the larger one's arrays, and no values.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from .. import config
from ..exchange.protocol import wire
from ..exchange.protocol.handshake import Command, Handshake
from ..exchange.protocol.status import Status
from ..exchange.protocol.store import ArraySpec, CancelledError, Store
from ..runtime.straggler_injection import NETWORK, Straggler
from .acknowledgement import Awaited
from .cluster_state import ClusterState
from .servers import Push, ServerNode, message_bytes, modelled
from .tasks import VirtualTask, VirtualWait


class VirtualStore(Store):
    """One worker's connection to the modelled servers.

    Args:
        state: the servers, and the state that all workers share.
        host: where this worker runs.
        rank: its slot.
        owner: the owner of its transfers, see `ports.NetworkTransfer`.
        straggler: delays to inject; None for none.

    Attributes:
        sent: bytes sent so far.
        received: bytes received so far.
        polls: polls of a server's status so far.
        tasks: further tasks of the worker.
    """

    lease = math.inf
    replacement = math.inf
    address = ""

    def __init__(
        self, state: ClusterState, host: str, rank: int, owner: object, straggler: Straggler | None = None
    ) -> None:
        self.state, self.host, self.owner = state, host, owner
        self.rank, self.workers, self.servers = rank, state.slots, len(state.nodes)
        self.bucket_elements, self.carries_values = state.bucket_elements, state.model is None
        state.nonces += 1
        self.nonce = state.nonces
        self.sent = self.received = 0.0
        self.polls = 0
        self.tasks: list[VirtualTask] = []
        self._engine, self._straggler = state.engine, straggler
        self._buffers: dict[int, np.ndarray] = {}
        self._elements: dict[int, int] = {}  # key → values of its array
        self._initialized_keys: set[int] = set()
        self._queued: list[list[ArraySpec]] = [[] for _ in state.nodes]
        self._awaited: Awaited | None = None
        self._cancelled = False
        self._under_way = 0  # number of messages in transit
        self._flushed: Callable[[Any], None] | None = None  # ends the wait for these messages

    @override
    def sizes(self, own: Mapping[str, int]) -> Mapping[str, int]:
        return modelled(self.state.model, own)

    # --- time and tasks ---------------------------------------------------------------------------

    @override
    def now(self) -> float:
        return self._engine.now

    @override
    def sleep(self, seconds: float) -> None:
        self._engine.pass_time(seconds)

    @override
    def inject_delay(self) -> None:
        if self._straggler is not None:
            self._engine.pass_time(self._straggler.delay(NETWORK, self._engine.now))

    def spawn(self, work: Callable[[], None]) -> VirtualTask:
        """See `Store.spawn`; there is one task at a time."""
        self._cancelled = False
        task = VirtualTask(self._engine, f"an exchange of worker {self.rank}", work, self._cancel)
        self.tasks = [running for running in self.tasks if not running.task.done]
        self.tasks.append(task)
        return task

    def start_heartbeats(self, beat: Callable[[], None]) -> None:
        """See `Store.start_heartbeats`; they are not needed, because no worker is dropped."""

    def progressed(self) -> None:
        """See `Store.progressed`."""

    @override
    def waiting(self, what: str) -> VirtualWait:
        return VirtualWait(self._engine, f"{what} the parameter server(s)")

    # --- arrays and messages ----------------------------------------------------------------------

    @override
    def send_handshake(self, handshake: Handshake) -> None:
        specification = handshake.specification
        self.state.message_bytes = message_bytes(self.workers, specification.scalars, specification.per_host)
        self.command(handshake)
        self.state.poke()  # another worker may have had this slot

    def command(self, command: Command) -> None:
        """See `Store.command`; it takes no time."""
        self._engine.settle()
        for node in self.state.nodes:
            node.endpoint.command(command)

    def buffer(self, key: int, elements: int) -> np.ndarray:
        """See `Store.buffer`; it is always a new array, since the last may still be in transit."""
        if (bound := self._elements.setdefault(key, elements)) != elements:
            raise ValueError(f"key {key} is bound to {bound} values, not {elements}")
        array = self._buffers[key] = np.empty(elements, np.float32)
        array[: wire.HEADER_ELEMENTS] = 0
        return array

    def init_shared(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """See `Store.init_shared`; its only cost is the wait for the other workers."""
        state = self.state
        if self.rank == 0 and 0 not in state.ready:  # not yet, even if an earlier worker 0 has crashed
            self.open(specs)
            state.shared.update(key for part in specs for key, _ in part)
        state.ready.add(self.rank)
        if len(state.ready) == state.slots and not state.everyone_ready.triggered:
            state.everyone_ready.succeed()
        self._engine.wait(state.everyone_ready, "all workers to come")
        self._initialized_keys |= state.shared

    def open(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """See `Store.open`; it takes no time."""
        if not self.carries_values:
            return
        for node, part in zip(self.state.nodes, specs, strict=True):
            for key, _ in part:
                self._store_first(node, key, self._buffers.pop(key))

    def send(
        self,
        server: int,
        specs: Iterable[ArraySpec],
        message: Mapping[str, Any] | None = None,
        others: Sequence[Any] = (),
    ) -> None:
        """See `Store.send`; everything leaves with the message, as one transfer."""
        queue = self._queued[server]
        queue.extend(specs)
        if message is None:
            return
        node, state = self.state.nodes[server], self.state
        self._queued[server] = []
        pushes: list[Push] = []
        if self.carries_values:
            for key, elements in queue:
                self._set_up(node, key, elements)
                pushes.append((key, self._buffers.pop(key)))
        if message["kind"] == wire.COMMIT:
            self._of(message["sequence"])
        else:
            self._engine.settle()
        total = bytes_of(queue) + state.message_bytes
        self.sent += total
        self._under_way += 1

        def handle() -> None:
            node.receive(pushes)
            node.endpoint.server.receive(message, others)
            state.changed([self.rank, *(int(other["rank"]) for other in others)], node.time)
            if others or message["kind"] != wire.COMMIT:  # the message may have been refused, or a worker has left
                state.poke()
            self._under_way -= 1
            if self._flushed is not None and not self._under_way:
                wake, self._flushed = self._flushed, None
                state.engine.call_at(node.time, wake, None)

        def arrive() -> None:
            node.occupy(len(queue) + 1, total, handle)

        state.network.send(self.host, node.model.host, total, arrive, self.owner)

    @override
    def fetch(self, server: int, specs: Sequence[ArraySpec]) -> "Iterable[np.ndarray]":
        if not specs:
            return ()
        node = self.state.nodes[server]
        if self.carries_values:
            for key, elements in specs:
                self._set_up(node, key, elements)
        size = bytes_of(specs)
        self.received += size
        self._count(node, len(specs) * config.SIMULATE_MESSAGE_BYTES)
        return Fetch(self, node, specs, size)

    def release(self, keys: Collection[int]) -> None:
        """Do nothing, because `buffer` always makes a new array; see `Store.release`."""

    @override
    def flush(self) -> None:
        self._engine.settle()
        if self._under_way:
            self._flushed = self._engine.waker(f"what worker {self.rank} has sent to arrive")
            self._engine.pause()

    def statuses(self) -> list[Status]:
        """See `Store.statuses`; asking costs nothing."""
        self._engine.settle()
        return self._snapshots()

    @override
    def acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status] | None:
        self._engine.settle()
        awaited = self._of(sequence)
        if self._engine.now >= awaited.noticed:
            return self._checked(check)
        if self.rank in self.state.hosts:
            self._checked(check)
        return None

    def await_acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status]:
        """See `Store.await_acknowledged`.

        The statuses are those at the arrival of the last poll at the servers.
        """
        engine, awaited = self._engine, self._of(sequence)
        if awaited.noticed == math.inf:
            self._await(awaited, check)
        else:
            engine.pass_time(max(0.0, awaited.polled - engine.now))
            engine.settle()
        statuses = self._checked(check)
        engine.pass_time(max(0.0, awaited.noticed - engine.now))
        return statuses

    @override
    def close(self, message: Mapping[str, Any] | None) -> None:
        for server in range(self.servers if message is not None else 0):
            self.send(server, (), message)

    # --- helpers ----------------------------------------------------------------------------------

    def round_trip(self, node: ServerNode) -> float:
        """Return the seconds of a poll of a server's status."""
        network, host = self.state.network, node.model.host
        return 2 * network.latency(self.host, host) + network.carrying(self.host, host, self.state.message_bytes)

    def held(self, at: float) -> float:
        """Return the seconds by which a message that this worker sends at that time is delayed."""
        return 0.0 if self._straggler is None else self._straggler.delay(NETWORK, at)

    def poll(self, node: ServerNode, times: int) -> None:
        """Count a number of polls of a server's status."""
        size = self.state.message_bytes
        self._count(node, times * config.SIMULATE_MESSAGE_BYTES)
        self.received += times * size
        self.polls += times
        self.state.network.count(node.model.host, self.host, times * size)

    def _count(self, node: ServerNode, size: float) -> None:
        """Count bytes to a server that do not compete for bandwidth."""
        self.sent += size
        self.state.network.count(self.host, node.model.host, size)

    def _set_up(self, node: ServerNode, key: int, elements: int) -> None:
        """Register a key with a server if it is unknown there."""
        if key not in self._initialized_keys:
            array = np.zeros(elements, np.float32)
            wire.stamp(array, wire.NOTHING, self.rank, self.nonce, 0, 0)
            self._store_first(node, key, array)

    def _store_first(self, node: ServerNode, key: int, array: np.ndarray) -> None:
        """Send the first array of a key twice.

        The server's store keeps the first one without calling the updater, which gets the stored
        array with the second one.
        """
        self._initialized_keys.add(key)
        node.receive([(key, array), (key, array)])

    def _snapshots(self) -> list[Status]:
        return [
            Status.of_round_state(node.round_state, self.rank, self.state.everyone, server)
            for server, node in enumerate(self.state.nodes)
        ]

    def _checked(self, check: Callable[[Status], None]) -> list[Status]:
        statuses = self._snapshots()
        for status in statuses:
            check(status)
        return statuses

    def _of(self, sequence: int) -> Awaited:
        """Return an exchange of this worker, which is created if another worker sends the payload."""
        if self._awaited is None or self._awaited.sequence != sequence:
            self._awaited = Awaited(self, sequence, self._engine.now)
            if not self._awaited.check(self._engine.now):
                self.state.waiting[self.rank] = self._awaited
        return self._awaited

    def _await(self, awaited: Awaited, check: Callable[[Status], None]) -> None:
        """Wait until the servers have handled an exchange.

        The worker's clock may stay ahead of the events, since no server uses a payload before it
        arrives.
        """
        engine = self._engine
        while awaited.noticed == math.inf:
            if self._cancelled:
                raise CancelledError
            awaited.wake = engine.waker(f"the commits of the others (worker {self.rank})")
            engine.pause()
            if self._cancelled:
                raise CancelledError
            if awaited.noticed == math.inf:  # woken because of an event on its host
                self._checked(check)

    def _cancel(self) -> None:
        """End the wait for an acknowledgement."""
        self._cancelled = True
        if self._awaited is not None:
            self._awaited.poke()


class Fetch:
    """Arrays in transit from a server; iterating waits for them.

    Args:
        store: the worker's store.
        node: the server.
        specs: the requested arrays.
        size: their bytes.
    """

    def __init__(self, store: VirtualStore, node: ServerNode, specs: Sequence[ArraySpec], size: float) -> None:
        self._store, self._node, self._specs, self._size = store, node, specs, size
        self._arrays: list[np.ndarray] = []
        self._complete = False
        self._wake: Callable[[Any], None] | None = None
        state = store.state
        arrives = state.engine.now + state.network.latency(store.host, node.model.host)
        state.engine.call_at(arrives, self._requested)

    def __iter__(self) -> Iterator[np.ndarray]:  # the wait begins with the first step
        if not self._complete:
            engine = self._store.state.engine
            self._wake = engine.waker(f"the model (worker {self._store.rank})")
            engine.pause()
        yield from self._arrays

    def _requested(self) -> None:
        self._node.occupy(len(self._specs), self._size, self._hand_out)

    def _hand_out(self) -> None:
        store, node = self._store, self._node
        if store.carries_values:
            shared = store.state.shared
            self._arrays = [node.copy(key, shared=key in shared) for key, _ in self._specs]
        store.state.network.send(node.model.host, store.host, self._size, self._arrived, store.owner, node.time)

    def _arrived(self) -> None:
        self._complete = True
        if self._wake is not None:
            self._wake(None)


def bytes_of(specs: Iterable[ArraySpec]) -> float:
    """Return the bytes on the wire for pushing or pulling these arrays."""
    return float(sum(4 * elements + config.SIMULATE_MESSAGE_BYTES for _, elements in specs))
