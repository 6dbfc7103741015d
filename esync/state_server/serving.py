"""Serve the WSGI application with Granian: one process with a few threads, started again if it crashes."""

import contextlib
import functools
import multiprocessing
import os
import resource
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from django.core.handlers.wsgi import WSGIHandler
from granian import Granian
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.common import AbstractServer

from .. import config
from ..membership.connections import raise_file_limit
from ..runtime.errors import ExpectedError
from . import service, state_folder

_PAUSE = 0.02  # seconds between two attempts to connect


def serve(
    host: str, port: int, state_dir: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> None:
    """Serve until a signal arrives, and print the server's URL in one line.

    Args:
        host: address to listen on.
        port: port to listen on; 0 chooses a free one.
        state_dir: state folder; None: that of this port or, with port 0, a temporary one.
        cert: certificate (PEM); None for plain HTTP.
        key: its key (PEM), if that is not in the same file.

    Raises:
        ExpectedError: the address, folder, certificate or database cannot be used.
    """
    os.environ["DJANGO_SETTINGS_MODULE"] = "esync.state_server.settings"
    raise_file_limit()
    with ExitStack() as stack:
        address, number = stack.enter_context(_reserved(host, port))
        if state_dir is None and port == 0:
            temporary = tempfile.TemporaryDirectory(prefix="esync-state-server-", ignore_cleanup_errors=True)
            state_dir = Path(stack.enter_context(temporary))
        folder = (state_dir or state_folder.default(port)).absolute()
        state_folder.StateFolder(folder).close()  # the process that answers requests locks it again
        os.environ[state_folder.VARIABLE] = str(folder)
        service.set_up_django()
        server = _server(address, number, cert, key)
        url = f"{'https' if cert else 'http'}://{f'[{address}]' if ':' in address else address}:{number}"
        ready = multiprocessing.Event()
        announcement = threading.Thread(target=_announce, args=(url, address, number, ready), daemon=True)
        hangup = signal.getsignal(signal.SIGHUP)
        server.on_startup(functools.partial(_end_on_hangup, server, hangup))
        server.on_startup(announcement.start)
        try:
            server.serve(target_loader=functools.partial(_application, ready), wrap_loader=False)
        except SystemExit as end:
            if end.code and not server.interrupt_signal:
                raise ExpectedError(
                    "the state server ends, because the process that answers has ended, for the reason above or twice "
                    "within seconds"
                ) from None
            raise


def _application(ready: Event) -> WSGIHandler:
    """Load the application in the process that answers requests, and set the event."""
    from .wsgi import application

    ready.set()
    return application


def _end_on_hangup(server: AbstractServer[Any], before: Any) -> None:
    """Let SIGHUP end the server, or ignore it if it was ignored before (nohup).

    Granian would start a second process, which would find the state folder locked.
    """
    signal.signal(signal.SIGHUP, before if before == signal.SIG_IGN else server.signal_handler_interrupt)


def _server(address: str, port: int, cert: Path | None, key: Path | None) -> AbstractServer[Any]:
    try:
        server: AbstractServer[Any] = Granian(
            "esync.state_server.wsgi:application",
            address=address,
            port=port,
            interface=Interfaces.WSGI,
            http=HTTPModes.http1,
            websockets=False,
            blocking_threads=config.STATE_SERVER_THREADS,
            backlog=config.STATE_SERVER_CONNECTIONS,
            backpressure=_max_connections(),
            http1_settings=HTTP1Settings(
                header_read_timeout=int(1000 * config.STATE_SERVER_SILENCE),
                max_buffer_size=config.STATE_SERVER_MAX_HEADERS,
            ),
            ssl_cert=cert,
            ssl_key=key or cert,
            ssl_protocol_min=SSLProtocols.tls12,
            respawn_failed_workers=True,
            workers_kill_timeout=config.STATE_SERVER_FAREWELL,
            log_enabled=False,
        )
        return server
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ExpectedError(f"the certificate {cert} and its key {key or cert} cannot be used: {error}") from None


def _max_connections() -> int:
    """Return the number of connections for which this process has file descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return config.STATE_SERVER_CONNECTIONS
    return max(2, min(config.STATE_SERVER_CONNECTIONS, files - config.STATE_SERVER_OTHER_FILES))


@contextlib.contextmanager
def _reserved(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Reserve an address and port, because Granian itself would share a port with another server.

    Two state servers that start at the same time would both find the port free; the unique name of a
    Unix socket prevents that.

    Raises:
        ExpectedError: the address or port cannot be used.
    """
    with ExitStack() as stack:
        try:
            addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, socket_address = addresses[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(socket_address)
                address, number = probe.getsockname()[:2]
            only = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            only.bind(f"\0esync-state-server/{address}/{number}")
            reserved = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind((address, number))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ExpectedError(f"the state server cannot listen on {host}:{port}: {reason}") from None
        yield address, number


def _announce(url: str, address: str, port: int, ready: Event) -> None:
    """Say where the server listens as soon as it does."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    ready.wait()  # for the application, which may not be able to start; its port opens just afterwards
    while True:
        with contextlib.suppress(OSError), socket.create_connection((reachable, port)):
            break
        time.sleep(_PAUSE)
    print(f"listening on {url}", flush=True)
