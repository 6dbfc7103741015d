"""This process's TCP connections, asked of the kernel: bytes that really went over the wire, and who is still there.

ps-lite and the HTTP client keep their sockets to themselves, but every open file of a process is listed in
/proc/self/fd, and TCP_INFO tells the rest. Linux only; elsewhere, and on kernels that do not count, nothing is found.
"""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_TCP_INFO_SIZE = 256
_STATE_OFFSET = 0
_BYTES_ACKED, _BYTES_RECEIVED = struct.Struct("=Q"), struct.Struct("=Q")
_ACKED_OFFSET, _RECEIVED_OFFSET = 120, 128  # tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info (linux/tcp.h)
_ESTABLISHED = 1


@dataclass(frozen=True)
class Connection:
    """One TCP connection.

    Attributes:
        inode: names the socket as long as it exists.
        here: this side's address and port.
        there: the other side's.
        established: whether both sides are there.
        sent: payload bytes that the other side has acknowledged.
        received: payload bytes.
    """

    inode: int
    here: tuple[str, int]
    there: tuple[str, int]
    established: bool
    sent: int
    received: int


def connections() -> list[Connection]:
    """The TCP connections of this process to other ones; ps-lite also connects to itself, which is left out."""
    found = list(_connections())
    ends = {connection.here for connection in found}
    return [connection for connection in found if connection.there not in ends]


def _duplicates() -> Iterator[socket.socket]:
    """The TCP sockets of this process, each as a duplicate that the caller closes."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return
    for number in numbers:
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            duplicate = socket.socket(fileno=os.dup(number))
        except OSError:
            continue  # closed meanwhile
        if duplicate.type == socket.SOCK_STREAM and duplicate.family in (socket.AF_INET, socket.AF_INET6):
            yield duplicate
        else:
            duplicate.close()


def _connections() -> Iterator[Connection]:
    for duplicate in _duplicates():
        with duplicate:
            try:
                if duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    continue
                here, there = duplicate.getsockname()[:2], duplicate.getpeername()[:2]
                info = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
                inode = os.fstat(duplicate.fileno()).st_ino
            except OSError:
                continue  # closed meanwhile, or never connected
            if len(info) < _RECEIVED_OFFSET + 8:
                continue
            yield Connection(
                inode,
                here,
                there,
                info[_STATE_OFFSET] == _ESTABLISHED,
                _BYTES_ACKED.unpack_from(info, _ACKED_OFFSET)[0],
                _BYTES_RECEIVED.unpack_from(info, _RECEIVED_OFFSET)[0],
            )


def listening() -> set[int]:
    """The TCP ports that this process listens on."""
    ports = set()
    for duplicate in _duplicates():
        with duplicate, contextlib.suppress(OSError):
            if duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(int(duplicate.getsockname()[1]))
    return ports


def keep_alive(idle: int, interval: int, count: int) -> None:
    """Have the kernel find out about other machines that are gone without a word, for all connections of this process.

    Args:
        idle: seconds without a sign of the other side before it is asked for one.
        interval: seconds between two questions.
        count: questions without an answer after which the connection has ended.
    """
    options = {
        socket.TCP_KEEPIDLE: idle,
        socket.TCP_KEEPINTVL: interval,
        socket.TCP_KEEPCNT: count,
        socket.TCP_USER_TIMEOUT: 1000 * (idle + interval * count),  # milliseconds, for data that is under way
    }
    for duplicate in _duplicates():
        with duplicate, contextlib.suppress(OSError):
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in options.items():
                duplicate.setsockopt(socket.IPPROTO_TCP, option, value)


class TrafficMeter:
    """Adds up what this process has sent and received over TCP, connections that have been closed included."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._taken = (0, 0)
        self.take()

    def take(self) -> tuple[int, int]:
        """Bytes sent and received since the last call (the first call: since the meter was made)."""
        for connection in connections():
            self._seen[connection.inode] = (connection.sent, connection.received)
        sent = sum(counts[0] for counts in self._seen.values())
        received = sum(counts[1] for counts in self._seen.values())
        before, self._taken = self._taken, (sent, received)
        return sent - before[0], received - before[1]
