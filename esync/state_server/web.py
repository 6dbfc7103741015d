"""Web server: uvicorn in this one process, because the jobs live in its memory."""

import asyncio
import contextlib
import resource
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .. import config
from ..membership.connections import raise_file_limit
from ..runtime.errors import ExpectedError
from . import responses, service, state_folder
from .acceptor import ClientConnection, ConnectionAcceptor
from .asgi import WELCOME, Application, StateServerApplication
from .connection_limits import ConnectionTable


class Protocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with a limit on the headers, which it would collect without end.

    Args:
        connection: the connection; the application calls its `welcome` for every request that is
            let in.
        named: keyword arguments of uvicorn's protocol.
    """

    _header_bytes = 0

    def __init__(self, connection: ClientConnection, **named: Any) -> None:
        super().__init__(**named)
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Tell the connection that HTTP has begun."""
        super().connection_made(transport)
        self._connection.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection that it has ended."""
        self._connection.left()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._header_bytes = 0
        super().on_message_begin()
        self.scope["state"][WELCOME] = self._connection.welcome

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP, in JSON like every error.

        Uvicorn's own answer would be plain text.
        """
        answer = responses.error(400, f"the request could not be read: {msg}")
        length = ("Content-Length", str(len(answer.body)))
        headers = (*answer.common, length, ("Connection", "close"))
        lines = ["HTTP/1.1 400 Bad Request", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.transport.write("\r\n".join(lines).encode() + answer.body)
        self.transport.close()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > config.STATE_SERVER_MAX_HEADERS:
            raise ValueError("too many headers")  # ends the request as one that cannot be read


class WebServer(uvicorn.Server):
    """Serves on sockets that listen already, until `should_exit` is set or a signal comes."""

    def __init__(self, application: Application, sockets: list[socket.socket], **tls: Any) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=Protocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=config.STATE_SERVER_KEEP_ALIVE,
                timeout_graceful_shutdown=config.STATE_SERVER_FAREWELL,
                **tls,
            )
        )
        self.sockets = sockets
        self.connections = ConnectionTable(*connection_places(), config.STATE_SERVER_STRANGER_PATIENCE)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, by `ConnectionAcceptor`, which limits them.

        Uvicorn itself would accept everybody.
        """
        await self.lifespan.startup()
        acceptors: list[Any] = [  # to uvicorn they are asyncio's servers
            ConnectionAcceptor(
                one, self.connections, self._protocol, self.config.ssl, config.STATE_SERVER_STRANGER_PATIENCE
            )
            for one in sockets or []
        ]
        self.servers = acceptors
        self.started = True

    def _protocol(self, connection: ClientConnection) -> Protocol:
        return Protocol(connection, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def run(self) -> None:  # type: ignore[override]
        """Serve until the end."""
        super().run(sockets=self.sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal without raising it again.

        The signal has been obeyed when the server ends.
        """
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def connection_places() -> tuple[int, int]:
    """Return how many callers and strangers this process has file descriptors for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return config.STATE_SERVER_CONNECTIONS, config.STATE_SERVER_STRANGERS
    free = max(2, files - config.STATE_SERVER_OTHER_FILES)
    strangers = min(config.STATE_SERVER_STRANGERS, max(1, free // 4))
    return min(config.STATE_SERVER_CONNECTIONS, free - strangers), strangers


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of that name; port 0 takes a free one.

    Raises:
        OSError: an address cannot be used.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
            place = (address[0], sockets[0].getsockname()[1] if sockets else port, *address[2:])
            sockets.append(_listen(family, place))
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(4096)
    except BaseException:
        one.close()
        raise
    return one


def create(
    running: service.Service, sockets: list[socket.socket], cert: Path | None = None, key: Path | None = None
) -> WebServer:
    """Return the web server, which is not running yet.

    Raises:
        ExpectedError: the certificate and its key cannot be used.
    """
    tls = {} if cert is None else {"ssl_certfile": str(cert), "ssl_keyfile": str(key) if key else None}
    server = WebServer(StateServerApplication(running), sockets, **tls)
    try:
        server.config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ExpectedError(f"the certificate {cert} and its key {key or cert} cannot be used: {error}") from None
    return server


def serve(
    host: str,
    port: int,
    token: str,
    state_dir: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> None:
    """Serve until a signal comes; say on standard output, in one line, where.

    Args:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        token: what callers have to send; see `auth.AccessControl`.
        state_dir: state folder; None takes the one of this port or, with port 0, one that is
            removed at the end.
        cert: certificate (PEM); None speaks plain HTTP.
        key: its key (PEM), if that is not in the same file.

    Raises:
        ExpectedError: the address, folder, certificate or database cannot be used.
    """
    sys.setswitchinterval(config.STATE_SERVER_SWITCH_INTERVAL)
    raise_file_limit()
    with contextlib.ExitStack() as stack:
        try:
            sockets = listen(host, port)
        except OSError as error:
            raise ExpectedError(f"the state server cannot listen on {host}:{port}: {error.strerror or error}") from None
        for one in sockets:
            stack.enter_context(one)
        if state_dir is None and port == 0:
            temporary = tempfile.TemporaryDirectory(prefix="esync-state-server-", ignore_cleanup_errors=True)
            state_dir = Path(stack.enter_context(temporary))
        running = stack.enter_context(contextlib.closing(service.start(state_dir or state_folder.default(port), token)))
        server = create(running, sockets, cert, key)
        for one in sockets:
            name, number = one.getsockname()[:2]
            place = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
            print(f"listening on {'https' if cert else 'http'}://{place}", flush=True)
        server.run()
