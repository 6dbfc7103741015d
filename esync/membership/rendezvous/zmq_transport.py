"""The node registry on ZeroMQ.

It listens where the cluster expects its scheduler, and reaches every process.
"""

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
from ..connections import Address, Connection, connections, reset
from ..failure_detector import FailureDetector
from . import messages
from .attendance import Attendance, AttendanceLog
from .contacts import EXAMINED_MOST, SOCKETS_EACH, Contacts
from .directory import ASK_EVERY, failure_reason
from .messages import EMPTY, SERVER, WORKER, BadMessageError, Message, Node
from .node_registry import SURPLUS_MOST, NodeRegistry, OutgoingMessage

log = logging.getLogger(__name__)

#: Seconds between two looks at who is still there.
TICK = 0.2
#: Seconds that a process may be missing: at one look only, long enough to connect again.
GRACE = 0.5 * TICK
#: Seconds that a member of the cluster has to show itself for the first time; one that dies at once
#: never does.
FIRST_GRACE = 5.0
#: Seconds that the other processes have to ask for the status of a run that cannot begin.
FAREWELL = 3 * ASK_EVERY
#: Seconds that a replacement waits before the user hears of it.
SURPLUS = 3.0
#: Bytes of the longest message that a process of ps-lite sends its scheduler, generously.
LONGEST = 4096
#: Answers that may wait for one process to read them.
UNREAD = 4
#: Bytes that one connection may bring at once, and for every second of its life: many times what
#: ps-lite sends, heartbeats included. ZeroMQ keeps all frames of a message that never ends, and
#: limits only the size of each.
ALLOWANCE, ALLOWED_A_SECOND = 262_144, 256
#: What ps-lite calls a process that has an id, in ZeroMQ.
IDENTITY = re.compile(rb"ps(\d{1,9})")


class ListenError(ExpectedError):
    """The scheduler's address cannot be used."""


class ZMQTransport:
    """Runs a node registry; main thread only.

    Args:
        registry: makes the decisions.
        host: the scheduler's address as the others know it.
        port: at which it listens.
        patience: seconds that a member may be gone, before the run has begun, until nobody waits
            for it any longer.

    Attributes:
        here: addresses of those members that are not gone; may be read from any thread.
        attendance: who is missing; likewise.

    Raises:
        ListenError: another process listens there, or the address is not this machine's.
    """

    def __init__(self, registry: NodeRegistry, host: str, port: int, patience: float = config.PEER_GONE) -> None:
        self._registry, self._patience = registry, patience
        self._context = zmq.Context()
        # Sockets of members, of processes that wait or are under examination, and the receiver.
        most = 2 * registry.places + SURPLUS_MOST + SOCKETS_EACH * (EXAMINED_MOST + 1) + 1
        self._context.set(zmq.MAX_SOCKETS, most + 1024)
        self._receiver = self._context.socket(zmq.ROUTER)
        self._receiver.setsockopt(zmq.MAXMSGSIZE, LONGEST)
        self._receiver.setsockopt(zmq.SNDHWM, UNREAD)
        # ZeroMQ would ignore a peer whose name is taken, and so a member whose name a stranger has
        # taken.
        self._receiver.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._poller = zmq.Poller()
        self._poller.register(self._receiver, zmq.POLLIN)
        self._contacts = Contacts(self._context, self._poller)
        self._detector: FailureDetector[Address] = FailureDetector(GRACE)
        self._surplus: dict[Node, float] = {}  # who waits for a place, and since when; infinite once that was said
        self._attendance_log = AttendanceLog()
        self._timestamp = 0
        self._complain = RateLimitedLog(log.warning)
        self._port = port
        self._opened: dict[int, float] = {}  # connection to this scheduler, by its inode → first seen
        self._deserted_since = math.inf  # since when no worker is there any more
        self.here: frozenset[Address] = frozenset()
        self.attendance: Attendance = registry.attendance(())
        try:
            self._receiver.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            raise ListenError(
                f"cannot listen at {host}:{port} (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT): {error.strerror}; the "
                "scheduler has to run on the machine with that address, and the port has to be free"
            ) from None

    def run(self) -> None:
        """Answer until the process is ended.

        A run that cannot begin ends this as soon as everybody has been told.
        """
        looked, end = 0.0, math.inf
        while time.monotonic() < end:
            if self._receiver in dict(self._poller.poll(int(1000 * TICK))):
                self._take(self._receiver.recv_multipart())
            for node in self._contacts.answered():
                self.here |= {node.address}
                self._send(self._registry.take(Message(messages.ADD_NODE, (node,))))
            if time.monotonic() - looked >= TICK:
                self._look()
                looked = time.monotonic()
                if self._registry.failure and end == math.inf:
                    log.error("%s", failure_reason(self._status()))
                    end = looked + FAREWELL

    def _take(self, frames: list[bytes]) -> None:
        """Handle one message."""
        match = IDENTITY.fullmatch(frames[0])
        sender = int(match[1]) if match else EMPTY
        try:
            message = Message.decode(b"".join(frames[1:2]))
        except BadMessageError as error:
            self._complain(str(error))
            return
        if message.command == messages.ADD_NODE:
            for node in message.nodes:
                self._register(node)
        elif message.command in (messages.WHO, messages.RUN_STATUS):
            self._timestamp += 1
            answer = self._registry.members() if message.command == messages.WHO else self._status()
            with contextlib.suppress(zmq.ZMQError):  # the process that asked is gone, or does not read
                self._receiver.send_multipart([frames[0], answer.encode(self._timestamp)], zmq.NOBLOCK)
        else:
            self._send(self._registry.take(message, sender))

    def _status(self) -> Message:
        return self._registry.run_status(self.attendance.encode())

    def _register(self, node: Node) -> None:
        """Begin to examine a process that says it belongs to the cluster."""
        if self._registry.may_join(node) and node.address not in self._contacts:
            self._contacts.introduce(node)

    def _look(self) -> None:
        """Find out who is gone, and let replacements in."""
        found = connections()
        self._shut_out(found)
        established = {connection.there for connection in found if connection.established}
        known = self._registry.everyone()
        there = {node.address for node in known if self._contacts.connected(node, established)}
        gone = self._gone(known, there)
        self._send(self._registry.admit(gone))
        now = time.monotonic()
        servers = {node.address for node in known if node.role == SERVER}  # in whose place nobody can come
        patience = {address: config.PEER_GONE if address in servers else self._patience for address in gone}
        if any(node.address not in gone for node in known):  # else nobody waits for anybody
            self._registry.give_up({each for each in gone if self._detector.missing(each, now) >= patience[each]})
        self._notice_desertion(now)
        self._contacts.keep(self._registry.everyone())
        self._announce(gone)
        self._mention(self._registry.waiting())
        members = {node.address for node in known if node.id != EMPTY}
        self.here = frozenset((members | there) - set(gone))

    def _gone(self, known: list[Node], there: set[Address]) -> list[Address]:
        """Conclude who is gone.

        A process that has registered may be slow to be reached; a member has been, so it is
        expected.
        """
        now = time.monotonic()
        self._detector.keep({node.address for node in known})
        for node in known:
            if node.id != EMPTY:
                self._detector.expect(node.address, now + FIRST_GRACE)
        return self._detector.look(there, now)

    def _shut_out(self, found: list[Connection]) -> None:
        """End connections that bring more bytes than any process of ps-lite sends."""
        now = time.monotonic()
        incoming = [connection for connection in found if connection.here[1] == self._port]
        self._opened = {each.inode: self._opened.get(each.inode, now) for each in incoming}
        for each in incoming:
            if each.received > ALLOWANCE + ALLOWED_A_SECOND * (now - self._opened[each.inode]):
                self._complain(f"a connection from {each.there[0]} has sent {each.received} bytes and is ended")
                reset({each.inode})

    def _notice_desertion(self, now: float) -> None:
        """Give the run up where workers had come, and none has been there any more for a while."""
        if self._registry.complete or self._registry.has_workers():
            self._deserted_since = math.inf if self._registry.complete else now
        self._registry.deserted = now - self._deserted_since >= config.WORKERS_GONE

    def _announce(self, gone: list[Address]) -> None:
        """Log for whom the others, or in the end this scheduler, wait, and tell the launcher."""
        before, self.attendance = self.attendance.missing, self._registry.attendance(gone)
        if self.attendance.missing and (silent := self._contacts.silent(config.PEER_GONE)):
            unreached = f"one that has registered from {silent[0].host}:{silent[0].port} does not answer there"
            self.attendance = replace(self.attendance, missing=f"{self.attendance.missing} ({unreached})")
        missing = self.attendance.missing
        if missing != before:
            progress.report_event(progress.MISSING, what=missing)
        # The start has a wait of its own, with a limit.
        self._attendance_log.update(self.attendance if self._registry.complete else None)

    def _mention(self, waiting: list[Node]) -> None:
        """Log who waits in vain for a place."""
        now = time.monotonic()
        self._surplus = {node: self._surplus.get(node, now) for node in waiting}
        for node, since in self._surplus.items():
            if now - since >= SURPLUS:
                self._surplus[node] = math.inf
                what = "worker" if node.role == WORKER else "server"
                log.warning(
                    "a %s at %s:%d waits: all places are taken, and no worker is gone but those that are done",
                    what, node.host, node.port,
                )  # fmt: skip

    def _send(self, sendings: list[OutgoingMessage]) -> None:
        for sending in sendings:
            self._timestamp += 1
            self._contacts.send(sending.to, sending.message, self._timestamp)
