"""A check of senders, which protects the port of MXNet from connections that do not use ZeroMQ.

MXNet's ZeroMQ considers a connection without ZeroMQ's signature one of its first version, which had
none. So bytes from a browser or a port scanner reach ps-lite as a message, and its parser ends the
process. MXNet has no setting against this, but Linux has socket filters: one on the listening
socket, which accepted connections inherit, drops the first bytes unless they are a signature. After
the signature, the filter is removed from the connection.

Bytes that immediately follow a signature are dropped, too, and resent by the sender's kernel, which
delays valid connections by about 0.2 seconds.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection

from ...membership.connections import TCPSocket

log = logging.getLogger(__name__)

#: Seconds between two scans of the sockets, and before the port has been opened.
TICK, FIRST_TICK = 0.05, 0.005
#: Largest share of a core for scans; with a thousand connections there are fewer scans.
SHARE = 0.02
#: Number of scans after which closed connections are forgotten.
FORGETTING = 1000
#: Classic BPF on data that starts with the TCP header. Each line: code, jump if true, jump if
#: false, operand.
SIGNATURE_ONLY = (
    (0x30, 0, 0, 12),  # A = byte 12: four bits of the header's length, in words
    (0x54, 0, 0, 0xF0),  # A &= 0xf0
    (0x74, 0, 0, 2),  # A >>= 2: in bytes
    (0x07, 0, 0, 0),  # X = A
    (0x80, 0, 0, 0),  # A = length of the whole
    (0x1C, 0, 0, 0),  # A -= X
    (0x15, 6, 0, 0),  # no content: pass
    (0x35, 0, 4, 10),  # fewer than 10 bytes: drop
    (0x50, 0, 0, 0),  # A = first byte of the content
    (0x15, 0, 2, 0xFF),  # not 255: drop
    (0x50, 0, 0, 9),  # A = tenth byte
    (0x15, 1, 0, 0x7F),  # 127: pass
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # pass
)


class FilterError(Exception):
    """This system has no socket filters."""


class SenderCheck(threading.Thread):
    """Filters the sockets of this process that listen after its creation.

    Args:
        others: ports on which this process listens already, for other purposes.
    """

    def __init__(self, others: Collection[int] = ()) -> None:
        super().__init__(name="sender check", daemon=True)
        self._others = frozenset(others)
        self._port: int | None = None
        self._done: set[int] = set()  # inodes of connections that need no further check
        self._filtered: set[int] = set()  # inodes of listening sockets
        self._over = threading.Event()
        self._scans = 0
        self._scan_seconds = 0.0  # of the last scan

    def settle(self, port: int) -> None:
        """Filter only this port from now on; filters on other ports are removed."""
        self._port = port

    def over(self) -> None:
        """Stop; connections without a signature stay filtered."""
        self._over.set()

    def run(self) -> None:
        """Scan the sockets until `over`."""
        while not self._over.wait(max(TICK if self._filtered else FIRST_TICK, self._scan_seconds / SHARE)):
            began = time.thread_time()
            if not self.scan():
                return
            self._scan_seconds = time.thread_time() - began

    def scan(self) -> bool:
        """Filter listening sockets, and remove filters from connections with a signature.

        Returns:
            Whether this system has socket filters.
        """
        self._scans += 1
        all_sockets = self._scans % FORGETTING == 0
        inodes = set()
        for tcp_socket in TCPSocket.all(() if all_sockets else self._done):
            try:
                inode = tcp_socket.inode
                inodes.add(inode)
                if tcp_socket.listens:
                    self._update_filter(tcp_socket, inode)
                elif inode not in self._done and (tcp_socket.received or not self._is_filtered(tcp_socket)):
                    self._done.add(inode)
                    with contextlib.suppress(OSError):  # it has none
                        tcp_socket.detach_filter()
            except FilterError as error:
                log.warning("cannot keep out connections that do not speak ZeroMQ: %s", error)
                return False
            except OSError:
                continue  # closed in the meantime, or not connected yet
        if all_sockets:
            self._done &= inodes
        self._filtered &= inodes
        return True

    def _update_filter(self, listener: TCPSocket, inode: int) -> None:
        is_filtered = self._is_filtered(listener)
        if is_filtered and inode not in self._filtered:
            try:
                listener.attach_filter(SIGNATURE_ONLY)
            except OSError as error:
                raise FilterError(str(error)) from None
            self._filtered.add(inode)
        elif not is_filtered and inode in self._filtered:
            self._filtered.discard(inode)
            listener.detach_filter()

    def _is_filtered(self, tcp_socket: TCPSocket) -> bool:
        """Return whether a socket listens on a filtered port, or is a connection to it."""
        port = tcp_socket.local_address()[1]
        matches = port not in self._others if self._port is None else port == self._port
        return matches and (tcp_socket.listens or bool(tcp_socket.remote_address()))
