"""Contacts: the scheduler's connections to members of the cluster and to processes that register.

Registrations are unauthenticated, and the name in one may be temporarily unresolvable. The scheduler
therefore first connects to the address in a registration, and accepts a process only if it answers
there with ZeroMQ's handshake. (ps-lite listens before it registers.)
"""

import logging
import time
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import recv_monitor_message

from ... import config
from ..connections import Address
from ..names import Lookup
from .messages import Message, Node
from .node_registry import SCHEDULER_ID

log = logging.getLogger(__name__)

#: Largest number of processes under examination; if there are more, the oldest is given up.
MAX_EXAMINED = 64
#: ZeroMQ sockets for each of them: the connection, and both ends of its monitor.
SOCKETS_EACH = 3
#: Milliseconds between two attempts to connect: initially, and the limit of exponential growth.
RECONNECT = (100, 5000)
#: Seconds to wait for the answer of one address of a host before the next address is tried.
NEXT_ADDRESS = 3.0


@dataclass
class Contact:
    """One process.

    Attributes:
        node: the process as registered.
        since: time of its registration.
        lookup: lookup of its host's addresses.
        addresses: its host's addresses, the current one first; empty until they are known.
        tried: time of the first attempt with that address.
        sender: socket that is connected to it.
        monitor: socket that reports its answer; None after that.
    """

    node: Node
    lookup: Lookup
    since: float = field(default_factory=time.monotonic)
    addresses: list[str] = field(default_factory=list)
    tried: float = 0.0
    sender: "zmq.Socket[bytes] | None" = None
    monitor: "zmq.Socket[bytes] | None" = None


class Contacts:
    """The connections of a scheduler; main thread only.

    Args:
        context: ZeroMQ's context, which must have enough sockets.
        poller: poller that is woken when a process answers.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", poller: zmq.Poller) -> None:
        self._context, self._poller = context, poller
        self._contacts: dict[Address, Contact] = {}  # those under examination in the order of registration

    def __contains__(self, address: Address) -> bool:
        return address in self._contacts

    def introduce(self, node: Node) -> None:
        """Start to examine whether a process that registers listens at its address."""
        examined = [contact for contact in self._contacts.values() if not _answered(contact)]
        if len(examined) >= MAX_EXAMINED:
            self.forget(examined[0].node)
        contact = self._contacts[node.address] = Contact(node, Lookup(node.host))
        self._advance(contact)

    def answered(self) -> list[Node]:
        """Return the processes that have answered since the last call."""
        answered = []
        for contact in list(self._contacts.values()):
            if _answered(contact):
                continue
            self._advance(contact)
            if contact.monitor is not None and contact.monitor.poll(0):
                recv_monitor_message(contact.monitor)
                self._close_monitor(contact)
                answered.append(contact.node)
            elif time.monotonic() - contact.since > config.START_TIMEOUT:
                log.warning("nobody answers at %s:%d, where a process said it listens", *contact.node.address)
                self.forget(contact.node)
        return answered

    def silent(self, seconds: float) -> list[Node]:
        """Return the processes that have not answered within `seconds`."""
        since = time.monotonic() - seconds
        return [contact.node for contact in self._contacts.values() if not _answered(contact) and contact.since < since]

    def keep(self, nodes: list[Node]) -> None:
        """Close the connections to processes that have answered but are not among `nodes`.

        ZeroMQ would continue to reconnect to them.
        """
        addresses = {node.address for node in nodes}
        for address, contact in list(self._contacts.items()):
            if _answered(contact) and address not in addresses:
                self.forget(contact.node)

    def forget(self, node: Node) -> None:
        """Close the connection to a process."""
        contact = self._contacts.pop(node.address)
        contact.lookup.cancel()
        self._close_monitor(contact)
        if contact.sender is not None:
            contact.sender.close()

    def connected(self, node: Node, established: set[Address]) -> bool:
        """Return whether one of the established connections leads to a process."""
        return any((address, node.port) in established for address in self._contacts[node.address].addresses)

    def send(self, to: Node, message: Message, timestamp: int) -> None:
        """Send a message to a process that has answered; does not wait."""
        sender = self._contacts[to.address].sender
        assert sender is not None
        try:
            sender.send(message.encode(timestamp), zmq.NOBLOCK)
        except zmq.Again:
            log.warning("the process at %s:%d does not read what it is sent", *to.address)

    def _advance(self, contact: Contact) -> None:
        """Perform the next step of an examination: look up the name, connect, or try the next address."""
        if contact.sender is not None:
            if len(contact.addresses) > 1 and time.monotonic() - contact.tried >= NEXT_ADDRESS:
                contact.sender.disconnect(_endpoint(contact))
                contact.addresses = [*contact.addresses[1:], contact.addresses[0]]
                self._try(contact)
            return
        failures = contact.lookup.failures
        contact.addresses = contact.lookup.addresses()
        if contact.addresses:
            self._connect(contact)
        elif contact.lookup.failures > failures == 0:
            log.warning(
                "cannot resolve the host %s of a process that has registered; trying again until it works (give it "
                "an address that is known here with DMLC_NODE_HOST)",
                contact.node.host,
            )

    def _connect(self, contact: Contact) -> None:
        sender = contact.sender = self._context.socket(zmq.DEALER)
        sender.setsockopt(zmq.IDENTITY, f"ps{SCHEDULER_ID}".encode())
        sender.setsockopt(zmq.LINGER, 0)
        sender.setsockopt(zmq.RECONNECT_IVL, RECONNECT[0])
        sender.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT[1])
        idle, interval, count = config.KEEP_ALIVE
        sender.setsockopt(zmq.TCP_KEEPALIVE, 1)
        sender.setsockopt(zmq.TCP_KEEPALIVE_IDLE, idle)
        sender.setsockopt(zmq.TCP_KEEPALIVE_INTVL, interval)
        sender.setsockopt(zmq.TCP_KEEPALIVE_CNT, count)
        sender.setsockopt(zmq.TCP_MAXRT, 1000 * (idle + interval * count))  # milliseconds, for data that is under way
        contact.monitor = sender.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._poller.register(contact.monitor, zmq.POLLIN)
        self._try(contact)

    @staticmethod
    def _try(contact: Contact) -> None:
        assert contact.sender is not None
        contact.tried = time.monotonic()
        contact.sender.connect(_endpoint(contact))

    def _close_monitor(self, contact: Contact) -> None:
        if contact.monitor is not None and contact.sender is not None:
            self._poller.unregister(contact.monitor)
            contact.sender.disable_monitor()
            contact.monitor.close()
            contact.monitor = None


def _answered(contact: Contact) -> bool:
    return contact.sender is not None and contact.monitor is None


def _endpoint(contact: Contact) -> str:
    return f"tcp://{contact.addresses[0]}:{contact.node.port}"
