"""The node registry on ZeroMQ: the scheduler's sockets."""

import contextlib
import logging
import math
import re
import time
from dataclasses import replace

import zmq

from ... import config
from ...runtime import progress
from ...runtime.errors import ExpectedError
from ...runtime.output import RateLimitedLog
from ..connections import Address, connections
from ..failure_detector import FailureDetector
from . import messages
from .attendance import Attendance, AttendanceLog
from .contacts import Contacts
from .directory import ASK_EVERY, failure_reason
from .messages import EMPTY, SERVER, WORKER, BadMessageError, Message, Node
from .node_registry import NodeRegistry, OutgoingMessage

log = logging.getLogger(__name__)

#: Seconds between two checks of the connections.
TICK = 0.2
#: Seconds for which a process may be missing: in one check only, while it reconnects.
GRACE = 0.5 * TICK
#: Seconds to wait for the first connection of a member.
FIRST_GRACE = 5.0
#: Seconds for which a scheduler whose run cannot begin still answers queries for the status.
FAREWELL = 3 * ASK_EVERY
#: Seconds after which a waiting replacement is reported to the user.
SURPLUS = 3.0
#: Upper limit to the bytes of a message from a process of ps-lite to its scheduler.
LONGEST = 4096
#: Largest number of unread answers to one process.
UNREAD = 4
#: ZeroMQ identity of a process of ps-lite with an id.
IDENTITY = re.compile(rb"ps(\d{1,9})")


class ListenError(ExpectedError):
    """Raised when the scheduler's address cannot be used."""


class ZMQTransport:
    """Runs a node registry; main thread only.

    Args:
        registry: makes the decisions.
        host: the scheduler's address as announced to the others.
        port: port on which it listens.
        patience: seconds after which, before the run has begun, a member that is gone is given up.

    Attributes:
        present: addresses of the members that are not gone; may be read from any thread.
        attendance: the missing processes; may be read from any thread.

    Raises:
        ListenError: another process listens there, or the address is not this machine's.
    """

    def __init__(self, registry: NodeRegistry, host: str, port: int, patience: float = config.PEER_TIMEOUT) -> None:
        self._registry, self._patience = registry, patience
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, self._context.get(zmq.SOCKET_LIMIT))
        self._receiver = self._context.socket(zmq.ROUTER)
        self._receiver.setsockopt(zmq.MAXMSGSIZE, LONGEST)
        self._receiver.setsockopt(zmq.SNDHWM, UNREAD)
        # By default ZeroMQ ignores a peer whose identity is in use, so that anybody could lock out a
        # member.
        self._receiver.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._poller = zmq.Poller()
        self._poller.register(self._receiver, zmq.POLLIN)
        self._contacts = Contacts(self._context, self._poller)
        self._detector: FailureDetector[Address] = FailureDetector(GRACE)
        self._surplus: dict[Node, float] = {}  # waiting replacement → since when; infinite once that was reported
        self._attendance_log = AttendanceLog()
        self._timestamp = 0
        self._warn = RateLimitedLog(log.warning)
        self._deserted_since = math.inf  # since when no worker is connected any more
        self.present: frozenset[Address] = frozenset()
        self.attendance: Attendance = registry.attendance(())
        try:
            self._receiver.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            raise ListenError(
                f"cannot listen at {host}:{port} (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT): {error.strerror}; the "
                "scheduler has to run on the machine with that address, and the port has to be free"
            ) from None

    def run(self) -> None:
        """Answer messages until the process ends, or a run that cannot begin has been reported to all."""
        looked, end = 0.0, math.inf
        while time.monotonic() < end:
            if self._receiver in dict(self._poller.poll(int(1000 * TICK))):
                self._handle(self._receiver.recv_multipart())
            for node in self._contacts.responding():
                self.present |= {node.address}
                self._send(self._registry.handle(Message(messages.ADD_NODE, (node,))))
            if time.monotonic() - looked >= TICK:
                self._check_connections()
                looked = time.monotonic()
                if self._registry.failure and end == math.inf:
                    log.error("%s", failure_reason(self._status()))
                    end = looked + FAREWELL

    def _handle(self, frames: list[bytes]) -> None:
        """Handle one message."""
        match = IDENTITY.fullmatch(frames[0])
        sender = int(match[1]) if match else EMPTY
        try:
            message = Message.decode(b"".join(frames[1:2]))
        except BadMessageError as error:
            self._warn(str(error))
            return
        if message.command == messages.ADD_NODE:
            for node in message.nodes:
                self._register(node)
        elif message.command in (messages.WHO, messages.RUN_STATUS):
            self._timestamp += 1
            answer = self._registry.members() if message.command == messages.WHO else self._status()
            with contextlib.suppress(zmq.ZMQError):  # the sender is gone, or does not read
                self._receiver.send_multipart([frames[0], answer.encode(self._timestamp)], zmq.NOBLOCK)
        else:
            self._send(self._registry.handle(message, sender))

    def _status(self) -> Message:
        return self._registry.run_status(self.attendance.encode())

    def _register(self, node: Node) -> None:
        """Start to examine a process that registers."""
        if self._registry.may_join(node) and node.address not in self._contacts:
            self._contacts.add(node)

    def _check_connections(self) -> None:
        """Determine which members are gone, and admit replacements."""
        established = {connection.remote for connection in connections() if connection.established}
        nodes = self._registry.everyone()
        connected = {node.address for node in nodes if node.address in established}
        dead = self._dead(nodes, connected)
        self._send(self._registry.admit(dead))
        now = time.monotonic()
        servers = {node.address for node in nodes if node.role == SERVER}  # they cannot be replaced
        patience = {address: config.PEER_TIMEOUT if address in servers else self._patience for address in dead}
        if connected:  # otherwise no member waits for another one
            self._registry.give_up({node for node in dead if self._detector.missing(node, now) >= patience[node]})
        self._check_disconnected(now)
        self._contacts.keep(self._registry.everyone())
        self._announce(dead)
        self._log_waiting(self._registry.waiting())
        members = {node.address for node in nodes if node.id != EMPTY}
        self.present = frozenset((members | connected) - set(dead))

    def _dead(self, members: list[Node], connected: set[Address]) -> list[Address]:
        """Return the members that are gone.

        Connecting to a process that has registered may take long; a member has been connected, and is
        therefore expected to be.
        """
        now = time.monotonic()
        self._detector.keep({node.address for node in members})
        for node in members:
            if node.id != EMPTY:
                self._detector.expect(node.address, now + FIRST_GRACE)
        return self._detector.observe(connected, now)

    def _check_disconnected(self, now: float) -> None:
        """Give up the run if all workers have been gone for a while."""
        if self._registry.complete or self._registry.has_workers():
            self._deserted_since = math.inf if self._registry.complete else now
        self._registry.deserted = now - self._deserted_since >= config.NO_WORKERS_TIMEOUT

    def _announce(self, dead: list[Address]) -> None:
        """Log which processes are missing, and report them to the launcher."""
        before, self.attendance = self.attendance.missing, self._registry.attendance(dead)
        if self.attendance.missing and (silent := self._contacts.silent(config.PEER_TIMEOUT)):
            unreached = f"one that has registered from {silent[0].host}:{silent[0].port} does not answer there"
            self.attendance = replace(self.attendance, missing=f"{self.attendance.missing} ({unreached})")
        missing = self.attendance.missing
        if missing != before:
            progress.report_event(progress.MISSING, what=missing)
        # The start has a wait of its own, with a limit.
        self._attendance_log.update(self.attendance if self._registry.complete else None)

    def _log_waiting(self, waiting: list[Node]) -> None:
        """Log replacements that have waited for long."""
        now = time.monotonic()
        self._surplus = {node: self._surplus.get(node, now) for node in waiting}
        for node, since in self._surplus.items():
            if now - since >= SURPLUS:
                self._surplus[node] = math.inf
                role = "worker" if node.role == WORKER else "server"
                log.warning(
                    "a %s at %s:%d waits: all places are taken, and no worker is gone but those that are done",
                    role, node.host, node.port,
                )  # fmt: skip

    def _send(self, sendings: list[OutgoingMessage]) -> None:
        for sending in sendings:
            self._timestamp += 1
            self._contacts.send(sending.to, sending.message, self._timestamp)
