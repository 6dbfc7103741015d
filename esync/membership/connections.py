"""The TCP connections of this process, as the kernel knows them: peers, and bytes on the wire.

ps-lite and the HTTP client keep their sockets to themselves, but every open file of a process is
listed in /proc/self/fd, and TCP_INFO tells the rest. This is Linux only; elsewhere, and on kernels
that do not count, nothing is found.
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
        inode: identifies the socket as long as it exists.
        here: this side's address and port.
        there: the other side's.
        established: whether both sides are there.
        sent: payload bytes that the other side has acknowledged.
        received: payload bytes received.
    """

    inode: int
    here: Address
    there: Address
    established: bool
    sent: int
    received: int


def connections() -> list[Connection]:
    """Return the TCP connections of this process to other ones.

    ps-lite also connects to itself; such connections are left out.
    """
    found = list(_connections())
    ends = {connection.here for connection in found}
    return [connection for connection in found if connection.there not in ends]


def outgoing() -> list[Connection]:
    """Return the connections that this process has opened itself; strangers cannot add to these."""
    ports = listening()
    return [connection for connection in connections() if connection.here[1] not in ports]


def _descriptors() -> Collection[int]:
    """Return numbers that may be open files of this process."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except FileNotFoundError:
        return []  # not Linux
    except OSError:
        # The table of open files is full (strangers may have seen to that), so the folder cannot be
        # opened.
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class TCPSocket:
    """A TCP socket of this process, by its number; it may be ps-lite's, or the user's program's.

    It is asked in C: neither a duplicate nor a Python socket is made of it. A duplicate fails when
    the table of open files is full, and a Python socket takes on socket.setdefaulttimeout, which
    makes the original one non-blocking too.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def all(cls, but: Collection[int] = ()) -> "Iterator[TCPSocket]":
        """Yield every TCP socket that is open now.

        One that is closed meanwhile raises OSError when it is asked.

        Args:
            but: inodes of sockets that are left out, which costs a fifth of asking them.
        """
        for number in _descriptors():
            try:
                status = os.fstat(number)
                if not stat.S_ISSOCK(status.st_mode) or status.st_ino in but:
                    continue
                each = cls(number)
                if each.integer(socket.SOL_SOCKET, socket.SO_TYPE) != socket.SOCK_STREAM:
                    continue
                if each.integer(socket.SOL_SOCKET, socket.SO_DOMAIN) not in (socket.AF_INET, socket.AF_INET6):
                    continue
            except OSError:
                continue  # closed meanwhile
            yield each

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
        """Inode of the socket, which identifies it as long as it exists."""
        return os.fstat(self.number).st_ino

    @property
    def received(self) -> int:
        """Payload bytes received; 0 where the kernel does not count."""
        info = self.option(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
        return int(_BYTES_RECEIVED.unpack_from(info.ljust(_TCP_INFO_SIZE, b"\0"), _RECEIVED_OFFSET)[0])

    def attach_filter(self, program: Sequence[tuple[int, int, int, int]]) -> None:
        """Have a program of classic BPF look at every segment that arrives.

        The filter is also on connections accepted from now on.

        Args:
            program: instructions (code, jump if true, jump if false, operand); it returns 0 for a
                segment that is to be dropped.
        """
        instructions = ctypes.create_string_buffer(b"".join(_BPF.pack(*each) for each in program))
        header = _BPF_PROGRAM.pack(len(program), ctypes.addressof(instructions))
        _check(_libc.setsockopt(self.number, socket.SOL_SOCKET, _SO_ATTACH_FILTER, header, len(header)))

    def detach_filter(self) -> None:
        """Remove the filter; OSError if there is none."""
        self.set(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def here(self) -> Address:
        """Return this end, as host and port (getsockname)."""
        return self._name(_libc.getsockname)

    def there(self) -> Address:
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
    for each in TCPSocket.all():
        try:
            if each.listens:
                continue
            here, there = each.here(), each.there()
            info = each.option(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
            inode = os.fstat(each.number).st_ino
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
    """Return the TCP ports that this process listens on."""
    ports = set()
    for each in TCPSocket.all():
        with contextlib.suppress(OSError):
            if each.listens:
                ports.add(each.here()[1])
    return ports


def keep_alive(idle: int, interval: int, count: int, among: Collection[Address]) -> None:
    """Have the kernel detect other machines that have vanished without a word.

    Args:
        idle: seconds without a sign of the other side before it is probed.
        interval: seconds between two probes.
        count: probes without an answer after which the connection has ended.
        among: addresses, the other side's or this one's, of the connections that are meant.
    """
    options = {
        socket.TCP_KEEPIDLE: idle,
        socket.TCP_KEEPINTVL: interval,
        socket.TCP_KEEPCNT: count,
        socket.TCP_USER_TIMEOUT: 1000 * (idle + interval * count),  # milliseconds, for data that is under way
    }
    for each in TCPSocket.all():
        with contextlib.suppress(OSError):
            if each.there() not in among and each.here() not in among:
                continue
            each.set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in options.items():
                each.set(socket.IPPROTO_TCP, option, value)


def reset(inodes: Collection[int]) -> None:
    """Abort connections of this process, given by their inodes, whichever code owns them.

    Connecting a TCP socket to no address aborts its connection (connect(2)). After shutdown(2) the
    other side could go on sending, and whoever reads would never come to the end.
    """
    nowhere = _FAMILY.pack(socket.AF_UNSPEC).ljust(_ADDRESS_SIZE, b"\0")
    for each in TCPSocket.all():
        with contextlib.suppress(OSError):
            if os.fstat(each.number).st_ino in inodes:
                _check(_libc.connect(each.number, nowhere, _ADDRESS_SIZE))


def raise_file_limit() -> None:
    """Allow this process as many open files, and so connections, as the hard limit permits.

    The usual soft limit is 1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class TrafficMeter:
    """Adds up what this process has sent and received over TCP, on closed connections, too."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._taken = (0, 0)
        self.take()

    def take(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call.

        The first call counts from when the meter was made.
        """
        for connection in connections():
            self._seen[connection.inode] = (connection.sent, connection.received)
        sent = sum(counts[0] for counts in self._seen.values())
        received = sum(counts[1] for counts in self._seen.values())
        before, self._taken = self._taken, (sent, received)
        return sent - before[0], received - before[1]
