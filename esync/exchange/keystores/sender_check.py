"""A check of senders, which keeps strangers out of the port that MXNet opens.

Strangers are those who do not speak ZeroMQ. MXNet's ZeroMQ takes connections that do not begin with
ZeroMQ's signature for ones of its first version, which had none. What a browser or a port scanner
sends then reaches ps-lite as a message, whose parser ends the process. MXNet has no setting against
that, but Linux has: a filter on the listening socket, which all accepted connections inherit, drops
the first bytes unless they are a signature. Once a connection has brought one, the filter is taken
off it.

What follows a signature at once is dropped too, and sent again by the kernel of the other side: a
wanted connection begins about a fifth of a second later.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection

from ...membership.connections import TCPSocket

log = logging.getLogger(__name__)

#: Seconds between two looks, and until the port has been opened.
TICK, FIRST_TICK = 0.05, 0.005
#: Largest share of a core that looking may take: with a thousand connections there are fewer looks.
SHARE = 0.02
#: Number of looks after which ended connections are forgotten.
FORGETTING = 1000
#: Classic BPF; what it sees begins with the TCP header. Each line: code, jump if true, jump if
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
    """This system has no such filters."""


class SenderCheck(threading.Thread):
    """Watches the sockets of this process that begin to listen after it was made.

    Args:
        others: ports on which this process listens already, for something else.
    """

    def __init__(self, others: Collection[int] = ()) -> None:
        super().__init__(name="sender check", daemon=True)
        self._others = frozenset(others)
        self._port: int | None = None
        self._done: set[int] = set()  # inodes of connections that need not be looked at again
        self._filtered: set[int] = set()  # inodes of sockets that listen
        self._over = threading.Event()
        self._looks = 0
        self._took = 0.0  # seconds of the last look

    def settle(self, port: int) -> None:
        """Watch only this port from now on; others opened meanwhile lose their filters."""
        self._port = port

    def over(self) -> None:
        """Stop watching; connections that have not brought a signature stay outside."""
        self._over.set()

    def run(self) -> None:
        """Look again and again."""
        while not self._over.wait(max(TICK if self._filtered else FIRST_TICK, self._took / SHARE)):
            began = time.thread_time()
            if not self.look():
                return
            self._took = time.thread_time() - began

    def look(self) -> bool:
        """Filter listening sockets, and take filters off connections that brought a signature.

        Returns:
            Whether this system has such filters.
        """
        self._looks += 1
        whole = self._looks % FORGETTING == 0
        seen = set()
        for each in TCPSocket.all(() if whole else self._done):
            try:
                inode = each.inode
                seen.add(inode)
                if each.listens:
                    self._attend(each, inode)
                elif inode not in self._done and (each.received or not self._meant(each)):
                    self._done.add(inode)
                    with contextlib.suppress(OSError):  # it has none
                        each.detach_filter()
            except FilterError as error:
                log.warning("cannot keep out connections that do not speak ZeroMQ: %s", error)
                return False
            except OSError:
                continue  # closed meanwhile, or not connected yet
        if whole:
            self._done &= seen
        self._filtered &= seen
        return True

    def _attend(self, listener: TCPSocket, inode: int) -> None:
        meant = self._meant(listener)
        if meant and inode not in self._filtered:
            try:
                listener.attach_filter(SIGNATURE_ONLY)
            except OSError as error:
                raise FilterError(str(error)) from None
            self._filtered.add(inode)
        elif not meant and inode in self._filtered:
            self._filtered.discard(inode)
            listener.detach_filter()

    def _meant(self, one: TCPSocket) -> bool:
        """Return whether this is a listener on the watched port, or a connection to it."""
        port = one.here()[1]
        one_of_them = port not in self._others if self._port is None else port == self._port
        return one_of_them and (one.listens or bool(one.there()))
