"""Contacts: the scheduler's connections to members of the cluster and to processes that register.

Registrations are unauthenticated. The scheduler therefore first connects to the address in one, and
accepts a process only if it answers there with ZeroMQ's handshake. (ps-lite listens before it registers.)
"""

import logging
import time
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import recv_monitor_message

from ... import config
from ..connections import Address
from .messages import Message, Node
from .node_registry import SCHEDULER_ID

log = logging.getLogger(__name__)

#: Milliseconds between two attempts to connect: initially, and the limit of exponential growth.
RECONNECT = (100, 5000)


@dataclass
class Contact:
    """One process.

    Attributes:
        node: the process as registered.
        sender: socket that is connected to it.
        monitor: socket that reports its answer; None after that.
        since: time of its registration.
    """

    node: Node
    sender: "zmq.Socket[bytes]"
    monitor: "zmq.Socket[bytes] | None"
    since: float = field(default_factory=time.monotonic)


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

    def add(self, node: Node) -> None:
        """Start to examine whether a process that registers listens at its address."""
        sender = self._context.socket(zmq.DEALER)
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
        monitor = sender.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._poller.register(monitor, zmq.POLLIN)
        sender.connect(f"tcp://{node.host}:{node.port}")
        self._contacts[node.address] = Contact(node, sender, monitor)

    def responding(self) -> list[Node]:
        """Return the processes that have answered since the last call."""
        nodes = []
        for contact in list(self._contacts.values()):
            if contact.monitor is None:
                continue
            if contact.monitor.poll(0):
                recv_monitor_message(contact.monitor)
                self._close_monitor(contact)
                nodes.append(contact.node)
            elif time.monotonic() - contact.since > config.START_TIMEOUT:
                log.warning("nobody answers at %s:%d, where a process said it listens", *contact.node.address)
                self.forget(contact.node)
        return nodes

    def silent(self, seconds: float) -> list[Node]:
        """Return the processes that have not answered within `seconds`."""
        since = time.monotonic() - seconds
        return [
            contact.node for contact in self._contacts.values() if contact.monitor is not None and contact.since < since
        ]

    def keep(self, nodes: list[Node]) -> None:
        """Close the connections to processes that have answered but are not among `nodes`.

        ZeroMQ would continue to reconnect to them.
        """
        addresses = {node.address for node in nodes}
        for address, contact in list(self._contacts.items()):
            if contact.monitor is None and address not in addresses:
                self.forget(contact.node)

    def forget(self, node: Node) -> None:
        """Close the connection to a process."""
        contact = self._contacts.pop(node.address)
        self._close_monitor(contact)
        contact.sender.close()

    def send(self, to: Node, message: Message, timestamp: int) -> None:
        """Send a message to a process that has answered; does not wait."""
        try:
            self._contacts[to.address].sender.send(message.encode(timestamp), zmq.NOBLOCK)
        except zmq.Again:
            log.warning("the process at %s:%d does not read what it is sent", *to.address)

    def _close_monitor(self, contact: Contact) -> None:
        if contact.monitor is not None:
            self._poller.unregister(contact.monitor)
            contact.sender.disable_monitor()
            contact.monitor.close()
            contact.monitor = None
