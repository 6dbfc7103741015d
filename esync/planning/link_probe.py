"""Measure latency and bandwidth between two hosts over TCP connections.

One host runs a `LinkServer`, the other one calls `probe_link` with its address. The receiver
measures the bandwidth, because only bytes that have arrived have passed the network.
"""

import contextlib
import select
import socket
import socketserver
import statistics
import struct
import threading
import time
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from .. import config

#: Requests, one byte each.
ECHO, TAKE, SEND, TAKE_SHARED = b"e", b"t", b"s", b"T"
#: Bytes that are sent or received at a time.
CHUNK = 1 << 18
#: Number of received bytes that suffices for a measurement.
ENOUGH_BYTES = 1 << 20
#: Intervals of a measurement.
INTERVALS = 7
#: Seconds of silence after which the other side is given up.
PATIENCE = 15.0


@dataclass(frozen=True)
class LinkFigures:
    """Latency and bandwidths between two hosts, as seen by the caller.

    Attributes:
        latency: seconds from one host to the other, half of a round trip.
        up: bytes of payload per second to the server.
        down: bytes of payload per second from the server.
    """

    latency: float
    up: float
    down: float

    @property
    def both(self) -> float:
        """Bytes per second of an exchange, which sends as much as it receives: the harmonic mean."""
        return 2 / (1 / self.up + 1 / self.down)


class LinkServer(socketserver.ThreadingTCPServer):
    """Answers probes on its own port until it is closed.

    Args:
        address: address at which to listen.

    Attributes:
        port: the port.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), _Answer)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), name="link server", daemon=True).start()

    def close(self) -> None:
        """Stop accepting probes."""
        self.shutdown()
        self.server_close()


class _Answer(socketserver.BaseRequestHandler):
    @override
    def handle(self) -> None:
        connection: socket.socket = self.request
        with contextlib.suppress(OSError, ValueError):  # the caller reports what went wrong
            _prepare(connection)
            request = connection.recv(1)
            if request == ECHO:
                while byte := connection.recv(1):
                    connection.sendall(byte)
            elif request in (TAKE, TAKE_SHARED):
                connection.sendall(f"{_receive(connection, shared=request == TAKE_SHARED)!r}\n".encode())
                while connection.recv(CHUNK):  # until the caller has read that
                    pass
            elif request == SEND:
                _send(connection)


def probe_link(address: str, port: int) -> LinkFigures:
    """Measure the link to a `LinkServer`.

    Args:
        address: address of the server.
        port: port of the server.

    Raises:
        OSError: the server cannot be reached.
    """
    endpoint = address, port
    return LinkFigures(_latency(endpoint), _up(endpoint, TAKE), _down(endpoint))


def share_link(address: str, port: int, up: bool) -> float:
    """Return this host's share of a link that others use at the same time, in bytes per second.

    It is measured for `config.MEASURE_LINK_SHARED` seconds, in one direction. All hosts have to
    begin together, because the remaining ones get larger shares when one of them has ended.

    Args:
        address: address of the `LinkServer`.
        port: port of the server.
        up: whether to measure the direction to the server, or from it.

    Raises:
        OSError: the server cannot be reached.
    """
    endpoint = address, port
    return _up(endpoint, TAKE_SHARED) if up else _down(endpoint, shared=True)


def _latency(endpoint: tuple[str, int]) -> float:
    with _connect(endpoint, ECHO) as connection:
        latencies = []
        for _ in range(config.MEASURE_ROUND_TRIPS):
            begun = time.perf_counter()
            connection.sendall(b".")
            if not connection.recv(1):
                raise ConnectionError("the connection has ended")
            latencies.append(time.perf_counter() - begun)
    return statistics.median(latencies[1:]) / 2


def _up(endpoint: tuple[str, int], request: bytes) -> float:
    with _connect(endpoint, request) as connection:
        _send(connection)
        return float(connection.makefile("rb").readline() or b"0") or _too_few()


def _down(endpoint: tuple[str, int], shared: bool = False) -> float:
    with _connect(endpoint, SEND) as connection:
        return _receive(connection, shared) or _too_few()


def _too_few() -> float:
    raise ConnectionError(f"almost nothing arrived within {config.MEASURE_LINK_MAX:g} s")


def _connect(endpoint: tuple[str, int], request: bytes) -> socket.socket:
    connection = socket.create_connection(endpoint, timeout=PATIENCE)
    _prepare(connection)
    connection.sendall(request)
    return connection


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Data that a slow link has not carried yet is dropped when the connection is closed.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _send(connection: socket.socket) -> None:
    """Send bytes until the other side answers or ends."""
    data = bytes(CHUNK)
    connection.setblocking(False)
    while True:
        readable, writable, _ = select.select([connection], [connection], [], PATIENCE)
        if readable or not writable:
            break
        connection.send(data)
    connection.settimeout(PATIENCE)


def _receive(connection: socket.socket, shared: bool = False) -> float:
    """Receive for a while, longer from a slow link; return the bytes per second after the warm-up.

    Return 0 if hardly any arrive. It is the median over some intervals, because all that has arrived behind a lost
    packet is delivered when that has been sent again. On a shared link it is the mean, and all hosts receive for the
    same time.
    """
    minimum, maximum = config.MEASURE_LINK, config.MEASURE_LINK_MAX
    if shared:
        minimum = maximum = config.MEASURE_LINK_SHARED
    buffer = bytearray(CHUNK)
    begun = last = 0.0
    total = 0
    times, totals = list[float](), list[int]()
    while not begun or last - begun < (minimum if total - sum(totals[:1]) > ENOUGH_BYTES else maximum):
        count = connection.recv_into(buffer)
        if not count:
            break
        last = time.perf_counter()
        begun = begun or last
        total += count
        if last - begun >= config.MEASURE_LINK_WARM_UP:
            times.append(last)
            totals.append(total)
    if not times or times[-1] == times[0]:
        return 0.0
    edges = np.linspace(times[0], times[-1], (1 if shared else INTERVALS) + 1)
    return float(np.median(np.diff(np.interp(edges, times, totals)) / np.diff(edges)))
