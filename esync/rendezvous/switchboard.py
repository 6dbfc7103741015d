"""The roster on ZeroMQ: listens where the cluster expects its scheduler, and reaches every process where it listens."""

import logging
import math
import socket
import time

import zmq

from ..errors import ExpectedError
from ..sockets import connections
from .messages import WORKER, BadMessageError, Message, Node
from .presence import Presence
from .roster import SCHEDULER_ID, Roster, Sending

log = logging.getLogger(__name__)

#: Seconds between two looks at who is still there.
TICK = 0.2
#: Seconds that a newcomer waits before the user hears of it.
SURPLUS = 3.0


class ListenError(ExpectedError):
    """The scheduler's address cannot be used."""


class Switchboard:
    """Runs a roster; main thread only.

    Args:
        roster: decides.
        host: the scheduler's address as the others know it.
        port: where it listens.

    Raises:
        ListenError: somebody else listens there, or the address is not this machine's.
    """

    def __init__(self, roster: Roster, host: str, port: int) -> None:
        self._roster = roster
        self._context = zmq.Context()
        self._receiver = self._context.socket(zmq.ROUTER)
        self._senders: dict[tuple[str, int], zmq.Socket[bytes]] = {}
        self._numbers: dict[str, str] = {}  # the address of each host as the kernel writes it
        self._presence = Presence()
        self._surplus: dict[Node, float] = {}  # who waits for a place, and since when; infinite once that was said
        self._timestamp = 0
        try:
            self._receiver.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            raise ListenError(
                f"cannot listen at {host}:{port} (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT): {error.strerror}; the "
                "scheduler has to run on the machine with that address, and the port has to be free"
            ) from None

    def run(self) -> None:
        """Answer until the process is ended."""
        looked = 0.0
        while True:
            if self._receiver.poll(int(1000 * TICK)):
                self._take(self._receiver.recv_multipart())
            if time.monotonic() - looked >= TICK:
                self._look()
                looked = time.monotonic()

    def _take(self, frames: list[bytes]) -> None:
        """One message: who sent it, and what it says."""
        try:
            message = Message.decode(b"".join(frames[1:2]))
        except BadMessageError as error:
            log.warning("%s", error)
        else:
            self._send(self._roster.take(message))

    def _look(self) -> None:
        """See who is gone, and let newcomers in."""
        established = {connection.there for connection in connections() if connection.established}
        known = self._roster.everyone()
        addresses = {(node.host, node.port) for node in known}
        for address in self._senders.keys() - addresses:  # it would go on trying to reach them
            self._senders.pop(address).close()
        for node in known:
            self._sender(node)
        there = {(host, port) for host, port in addresses if (self._numbers[host], port) in established}
        gone = self._presence.look(known, there)
        self._send(self._roster.admit(gone))
        self._mention(self._roster.waiting())

    def _mention(self, waiting: list[Node]) -> None:
        """Say who waits in vain."""
        now = time.monotonic()
        self._surplus = {node: self._surplus.get(node, now) for node in waiting}
        for node, since in self._surplus.items():
            if now - since >= SURPLUS:
                self._surplus[node] = math.inf
                what = "worker" if node.role == WORKER else "server"
                log.warning(
                    "a %s at %s:%d waits: all places are taken, and no worker's connection has ended",
                    what, node.host, node.port,
                )  # fmt: skip

    def _sender(self, node: Node) -> "zmq.Socket[bytes]":
        """The connection to a process."""
        address = (node.host, node.port)
        if address not in self._senders:
            self._numbers[node.host] = socket.gethostbyname(node.host)
            sender = self._senders[address] = self._context.socket(zmq.DEALER)
            sender.setsockopt(zmq.IDENTITY, f"ps{SCHEDULER_ID}".encode())
            sender.setsockopt(zmq.LINGER, 0)
            sender.connect(f"tcp://{node.host}:{node.port}")
        return self._senders[address]

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self._timestamp += 1
            self._sender(sending.to).send(sending.message.encode(self._timestamp), zmq.NOBLOCK)
