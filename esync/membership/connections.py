"""The TCP connections of this process, according to the kernel: peers, and transmitted bytes.

ps-lite and the HTTP client do not expose their sockets, but /proc/self/fd lists every open file of a
process, and TCP_INFO has the numbers of bytes. This works on Linux only; elsewhere, and on kernels that
do not count, there are no results.
"""

import contextlib
import ctypes
import os
import resource
import socket
import stat
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_TCP_INFO_SIZE = 256
_STATE_OFFSET = 0
_BYTES_ACKED, _BYTES_RECEIVED = struct.Struct("=Q"), struct.Struct("=Q")
_ACKED_OFFSET, _RECEIVED_OFFSET = 120, 128  # tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info (linux/tcp.h)
_ESTABLISHED = 1
_INT = struct.Struct("=i")
_ADDRESS_SIZE = 128  # struct sockaddr_storage
_FAMILY, _PORT = struct.Struct("=H"), struct.Struct("!H")  # struct sockaddr_in and sockaddr_in6 begin with these
_PORT_OFFSET, _IPV4_OFFSET, _IPV6_OFFSET = 2, 4, 8
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # linux/asm-generic/socket.h
_BPF, _BPF_PROGRAM = struct.Struct("=HBBI"), struct.Struct("@HP")  # struct sock_filter and sock_fprog
_libc = ctypes.CDLL(None, use_errno=True)

Address = tuple[str, int]  # host, as the kernel writes it, and port


@dataclass(frozen=True)
class Connection:
    """One TCP connection.

    Attributes:
        inode: identifies the socket while it exists.
        local: local address and port.
        remote: remote address and port.
        established: whether the connection is established.
        sent: payload bytes that the other side has acknowledged.
        received: payload bytes received.
    """

    inode: int
    local: Address
    remote: Address
    established: bool
    sent: int
    received: int


def connections() -> list[Connection]:
    """Return the TCP connections of this process to others, without those of ps-lite to itself."""
    open_connections = list(_connections())
    ends = {connection.local for connection in open_connections}
    return [connection for connection in open_connections if connection.remote not in ends]


def outgoing() -> list[Connection]:
    """Return the connections that this process has opened itself, which others cannot cause."""
    ports = listening()
    return [connection for connection in connections() if connection.local[1] not in ports]


def _descriptors() -> Collection[int]:
    """Return the possible descriptors of this process's open files."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except FileNotFoundError:
        return []  # not Linux
    except OSError:
        # The folder cannot be opened, because there are too many open files.
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class TCPSocket:
    """A TCP socket of this process, given by its descriptor, for instance ps-lite's.

    It is accessed in C, without a duplicate or a Python socket: a duplicate fails when there are too
    many open files, and a Python socket applies socket.setdefaulttimeout, which makes the original one
    non-blocking, too.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def all(cls, but: Collection[int] = ()) -> "Iterator[TCPSocket]":
        """Yield every open TCP socket.

        The methods of a socket that is closed meanwhile raise OSError.

        Args:
            but: inodes of sockets to skip, which takes a fifth of the time of a query.
        """
        for number in _descriptors():
            try:
                status = os.fstat(number)
                if not stat.S_ISSOCK(status.st_mode) or status.st_ino in but:
                    continue
                socket_ = cls(number)
                if socket_.integer(socket.SOL_SOCKET, socket.SO_TYPE) != socket.SOCK_STREAM:
                    continue
                if socket_.integer(socket.SOL_SOCKET, socket.SO_DOMAIN) not in (socket.AF_INET, socket.AF_INET6):
                    continue
            except OSError:
                continue  # closed meanwhile
            yield socket_

    @property
    def listens(self) -> bool:
        """Whether it is a listening socket."""
        return bool(self.integer(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    def option(self, level: int, option: int, size: int) -> bytes:
        """Return the bytes that getsockopt returns."""
        buffer, length = ctypes.create_string_buffer(size), ctypes.c_uint32(size)
        _check(_libc.getsockopt(self.number, level, option, buffer, ctypes.byref(length)))
        return buffer.raw[: length.value]

    def integer(self, level: int, option: int) -> int:
        """Return the int that getsockopt returns."""
        return int(_INT.unpack(self.option(level, option, _INT.size))[0])

    def set(self, level: int, option: int, value: int) -> None:
        """Call setsockopt with an int."""
        _check(_libc.setsockopt(self.number, level, option, _INT.pack(value), _INT.size))

    @property
    def inode(self) -> int:
        """Inode of the socket, which identifies it while it exists."""
        return os.fstat(self.number).st_ino

    @property
    def received(self) -> int:
        """Payload bytes received; 0 if the kernel does not count them."""
        info = self.option(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
        return int(_BYTES_RECEIVED.unpack_from(info.ljust(_TCP_INFO_SIZE, b"\0"), _RECEIVED_OFFSET)[0])

    def attach_filter(self, program: Sequence[tuple[int, int, int, int]]) -> None:
        """Attach a classic BPF program that filters every arriving segment.

        The filter also applies to connections accepted from now on.

        Args:
            program: instructions (code, jump if true, jump if false, operand); it returns 0 to drop a
                segment.
        """
        instructions = ctypes.create_string_buffer(b"".join(_BPF.pack(*instruction) for instruction in program))
        header = _BPF_PROGRAM.pack(len(program), ctypes.addressof(instructions))
        _check(_libc.setsockopt(self.number, socket.SOL_SOCKET, _SO_ATTACH_FILTER, header, len(header)))

    def detach_filter(self) -> None:
        """Remove the filter; OSError if there is none."""
        self.set(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def local_address(self) -> Address:
        """Return this end, as host and port (getsockname)."""
        return self._name(_libc.getsockname)

    def remote_address(self) -> Address:
        """Return the other end, as host and port (getpeername)."""
        return self._name(_libc.getpeername)

    def _name(self, call: Any) -> Address:
        buffer, length = ctypes.create_string_buffer(_ADDRESS_SIZE), ctypes.c_uint32(_ADDRESS_SIZE)
        _check(call(self.number, buffer, ctypes.byref(length)))
        family, port = _FAMILY.unpack_from(buffer)[0], _PORT.unpack_from(buffer, _PORT_OFFSET)[0]
        offset, size = (_IPV4_OFFSET, 4) if family == socket.AF_INET else (_IPV6_OFFSET, 16)
        return socket.inet_ntop(family, buffer.raw[offset : offset + size]), port


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _connections() -> Iterator[Connection]:
    for socket_ in TCPSocket.all():
        try:
            if socket_.listens:
                continue
            local, remote = socket_.local_address(), socket_.remote_address()
            info = socket_.option(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
            inode = os.fstat(socket_.number).st_ino
        except OSError:
            continue  # closed meanwhile, or never connected
        if len(info) < _RECEIVED_OFFSET + 8:
            continue
        yield Connection(
            inode,
            local,
            remote,
            info[_STATE_OFFSET] == _ESTABLISHED,
            _BYTES_ACKED.unpack_from(info, _ACKED_OFFSET)[0],
            _BYTES_RECEIVED.unpack_from(info, _RECEIVED_OFFSET)[0],
        )


def listening() -> set[int]:
    """Return the TCP ports that this process listens on."""
    ports = set()
    for socket_ in TCPSocket.all():
        with contextlib.suppress(OSError):
            if socket_.listens:
                ports.add(socket_.local_address()[1])
    return ports


def keep_alive(idle: int, interval: int, count: int, among: Collection[Address]) -> None:
    """Let the kernel detect dead machines by TCP keep-alive probes.

    Args:
        idle: seconds of silence before the first probe.
        interval: seconds between two probes.
        count: number of unanswered probes after which the connection ends.
        among: local or remote addresses of the connections to configure.
    """
    options = {
        socket.TCP_KEEPIDLE: idle,
        socket.TCP_KEEPINTVL: interval,
        socket.TCP_KEEPCNT: count,
        socket.TCP_USER_TIMEOUT: 1000 * (idle + interval * count),  # milliseconds, for data that is under way
    }
    for socket_ in TCPSocket.all():
        with contextlib.suppress(OSError):
            if socket_.remote_address() not in among and socket_.local_address() not in among:
                continue
            socket_.set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in options.items():
                socket_.set(socket.IPPROTO_TCP, option, value)


def raise_file_limit() -> None:
    """Raise the soft limit of open files, and so of connections, usually 1,024, to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class TrafficMeter:
    """Counts the bytes that this process has sent and received over TCP, including closed connections."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._read = (0, 0)
        self.read_delta()

    def read_delta(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call, or since the meter was created."""
        for connection in connections():
            self._seen[connection.inode] = (connection.sent, connection.received)
        sent = sum(counts[0] for counts in self._seen.values())
        received = sum(counts[1] for counts in self._seen.values())
        before, self._read = self._read, (sent, received)
        return sent - before[0], received - before[1]
