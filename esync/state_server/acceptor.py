"""Accept connections, and hand each to the HTTP server when its first byte has come.

A silent connection costs a socket and a small object. The objects that HTTP and TLS need for it are
made when its first byte has come. Where thousands of connections come at once, they are accepted in
turn with the requests that have arrived, so that these are answered meanwhile.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable

from .connection_limits import ConnectionTable
from .responses import AtMost

logger = logging.getLogger("esync.state_server.acceptor")
logger.addFilter(AtMost(lines=1, seconds=60.0))

#: Connections to accept, or to drop, before requests that have arrived get their turn.
AT_ONCE = 4
#: Seconds between two looks for strangers whose time is over; see `connection_limits`.
LOOK_EVERY = 0.1
#: Seconds without accepting if the process, or the machine, has no file descriptors left.
PAUSE = 0.05


class ClientConnection:
    """A connection from its arrival to its end; a `connection_limits.TrackedConnection`."""

    def __init__(self, acceptor: "ConnectionAcceptor", connected: socket.socket) -> None:
        self._acceptor = acceptor
        self._socket: socket.socket | None = connected  # while nothing has come yet
        self._entering: asyncio.Task[object] | None = None
        self.transport: asyncio.Transport | None = None  # of HTTP

    def wait(self) -> None:
        """Have `_enter` called when its first byte has come."""
        if self._socket is not None:
            self._acceptor.loop.add_reader(self._socket.fileno(), self._enter)

    def welcome(self) -> None:
        """Note that a complete request has been let in."""
        self._acceptor.connections.welcome(self)

    def left(self) -> None:
        """Note that the connection has ended."""
        self._acceptor.connections.leave(self)

    def drop(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        elif self._entering is not None:
            self._entering.cancel()
        elif self._socket is not None:
            self._acceptor.loop.remove_reader(self._socket.fileno())
            self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _enter(self) -> None:
        connected = self._socket
        if connected is None:
            return
        self._acceptor.loop.remove_reader(connected.fileno())
        try:
            gone = not connected.recv(1, socket.MSG_PEEK)
        except OSError:
            gone = True
        if gone:
            self._close()
            self.left()
        else:
            self._entering = self._acceptor.loop.create_task(self._give(connected))

    async def _give(self, connected: socket.socket) -> None:
        """Hand it to the HTTP protocol, over TLS where that is configured."""
        try:
            await self._acceptor.give(self, connected)
        except (OSError, asyncio.CancelledError):  # no TLS, gone, or dropped meanwhile
            if self.transport is not None:
                self.transport.abort()
            self._close()
            self.left()
        else:
            self._socket = None  # the transport's now
        self._entering = None


class ConnectionAcceptor:
    """Accepts connections on one listening socket until it is closed.

    Args:
        listening: the socket.
        connections: the table of all connections.
        protocol: makes the protocol object for a connection.
        tls: certificate and key; None speaks plain HTTP.
        patience: time limit of the TLS handshake, in seconds.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: ConnectionTable,
        protocol: Callable[[ClientConnection], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        patience: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.connections = connections
        self._listening, self._protocol, self._tls, self._patience = listening, protocol, tls, patience
        listening.setblocking(False)
        self._open()
        self._looking = self.loop.create_task(self._look())

    def close(self) -> None:
        """Stop accepting, and drop connections that have sent nothing yet."""
        self.loop.remove_reader(self._listening.fileno())
        self._looking.cancel()
        for connection in self.connections:
            if isinstance(connection, ClientConnection) and connection.transport is None:
                connection.drop()

    async def wait_closed(self) -> None:
        """Do nothing: no connection is left to wait for."""

    async def give(self, connection: ClientConnection, connected: socket.socket) -> None:
        """Hand a connection whose first byte has come to the HTTP protocol."""
        await self.loop.connect_accepted_socket(
            lambda: self._protocol(connection),
            connected,
            ssl=self._tls,
            ssl_handshake_timeout=self._patience if self._tls else None,
        )

    def _open(self) -> None:
        if self._listening.fileno() >= 0:  # not closed meanwhile
            self.loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptors left; those who wait are accepted later
                logger.error("cannot accept a connection: %s; a silent one is dropped for it", error.strerror)
                self.connections.drop_one_stranger()
                self.loop.remove_reader(self._listening.fileno())
                self.loop.call_later(PAUSE, self._open)
                return
            connected.setblocking(False)
            connection = ClientConnection(self, connected)
            self.connections.arrive(connection, time.monotonic())
            connection.wait()

    async def _look(self) -> None:
        while True:
            more = self.connections.expire(time.monotonic(), AT_ONCE)
            await asyncio.sleep(0 if more else LOOK_EVERY)
