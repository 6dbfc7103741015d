"""Share a file among the processes of one machine, which find one another by a name.

The name is that of an abstract Unix socket, which belongs to a network namespace and disappears with
the process that owns it, so that no file is left. The first process creates the shared file and
serves its descriptor to the others. When it ends, another one takes over. Processes of other users are
refused.
"""

import array
import contextlib
import errno
import logging
import os
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable

from .errors import ExpectedError

log = logging.getLogger(__name__)

#: Seconds to wait for the process that serves a name.
PATIENCE = 10.0
#: Seconds between two attempts to serve a name, or to connect to the serving process.
_PAUSE = 0.01
#: Seconds before the next attempt to accept a connection while this process has too many open files.
_NO_FILES_PAUSE = 0.5
_CREDENTIALS = struct.Struct("3i")  # process, user, group
#: First byte of a request: _WANTED, followed by the terms, requests the descriptor; _SAME, followed by
#: the identity of a file, asks whether this is the served file.
_WANTED, _SAME = b"w", b"s"
#: Answers. To _WANTED, _YES is sent with the descriptor, and _NO means that the terms differ.
_YES, _NO = b"y", b"n"
_LONGEST = 256  # bytes of a message


class DescriptorServiceError(ExpectedError):
    """Raised when a file cannot be shared under a name; the message says why."""


class OtherTermsError(DescriptorServiceError):
    """Raised when the file of that name was created with other terms."""


class _NotThereError(Exception):
    """Raised when no process serves the name."""


class DescriptorService:
    """One process's part in sharing a file under a name.

    Args:
        name: name of the socket; a random one, so that it is unique.
        terms: parameters that must be equal in all processes, at most 200 bytes.

    Attributes:
        name: the name of the socket.
        descriptor: descriptor of the file, which belongs to the caller of `get_or_make`; −1 before.
    """

    def __init__(self, name: str, terms: bytes) -> None:
        self.name, self._terms = name, terms
        self._process = os.getpid()
        self._wake, self._woken = socket.socketpair()
        self._listener: socket.socket | None = None
        self._upstream: socket.socket | None = None  # to the process that serves
        self._clients: set[socket.socket] = set()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.descriptor = -1
        self._identity = b""
        _services.add(self)

    def get_or_make(self, make: Callable[[], int]) -> int:
        """Return the descriptor of the shared file, which belongs to the caller.

        Args:
            make: creates the file if there is none yet, and returns its descriptor.

        Raises:
            OtherTermsError: the file was created with other terms.
            DescriptorServiceError: a process owns the name, but does not share the file.
        """
        limit = time.monotonic() + PATIENCE
        while self.descriptor < 0:
            try:
                self.descriptor = make() if self._bind() else self._request_descriptor(limit)
            except _NotThereError:
                if time.monotonic() > limit:
                    raise DescriptorServiceError(f"the process that shares {self._shown} does not answer") from None
                time.sleep(_PAUSE)
        status = os.fstat(self.descriptor)
        self._identity = struct.pack("2Q", status.st_dev, status.st_ino)
        self._thread = threading.Thread(target=self._run, name="descriptor service", daemon=True)
        self._thread.start()
        return self.descriptor

    def close(self) -> None:
        """Stop serving; another process takes over."""
        if self._process != os.getpid():
            return
        self._closed = True
        self._wake.close()
        if self._thread is not None:
            self._thread.join()
        self._close_sockets()

    # --- the serving process ----------------------------------------------------------------------

    def _bind(self) -> bool:
        """Try to become the serving process; return whether that succeeded."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(f"\0{self.name}")
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise DescriptorServiceError(f"cannot share {self._shown}: {error.strerror}") from None
            return False
        listener.setblocking(False)
        self._listener = listener
        return True

    def _accept(self, selector: selectors.BaseSelector) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):  # it has disconnected
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # the client waits until files are closed
                    time.sleep(_NO_FILES_PAUSE)
                raise
            if _user(client) != os.geteuid():
                log.warning("a process of user %d wanted %s; it is refused", _user(client), self._shown)
                client.close()
                return
            client.setblocking(False)
            self._clients.add(client)
            selector.register(client, selectors.EVENT_READ)

    def _answer(self, client: socket.socket) -> bool:
        """Answer a request; return whether the client is still connected."""
        try:
            question = client.recv(_LONGEST)
            if question == _WANTED + self._terms:
                _send_descriptor(client, self.descriptor)
            elif question:
                client.send(_YES if question == _SAME + self._identity else _NO)
        except OSError:
            return False
        return bool(question)

    # --- the other processes ----------------------------------------------------------------------

    def _connect(self, limit: float) -> socket.socket:
        """Connect to the process that serves.

        Raises:
            _NotThereError: it has ended, or does not listen yet.
            DescriptorServiceError: it belongs to another user.
        """
        upstream = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            upstream.settimeout(max(_PAUSE, limit - time.monotonic()))
            upstream.connect(f"\0{self.name}")
            if (user := _user(upstream)) != os.geteuid():
                raise DescriptorServiceError(f"{self._shown} is taken by a process of user {user}")
        except OSError:
            upstream.close()
            raise _NotThereError from None
        except DescriptorServiceError:
            upstream.close()
            raise
        return upstream

    def _request_descriptor(self, limit: float) -> int:
        """Get the file's descriptor from the serving process; raises the same errors as `_connect`."""
        upstream = self._connect(limit)
        try:
            upstream.send(_WANTED + self._terms)
            answer, descriptor = _receive_descriptor(upstream)
        except OSError:
            upstream.close()
            raise _NotThereError from None
        if answer != _YES or descriptor < 0:
            upstream.close()
            if not answer:
                raise _NotThereError
            raise OtherTermsError(f"{self._shown} was made on other terms")
        upstream.settimeout(None)
        self._upstream = upstream
        return descriptor

    def _succeed(self) -> None:
        """Take over from the process that has served, or connect to the one that has.

        No descriptor is received, because closing another descriptor of the file would release its locks.
        """
        limit = time.monotonic() + PATIENCE
        while not self._closed and time.monotonic() < limit:
            if self._bind():
                return
            try:
                upstream = self._connect(time.monotonic() + 1)
                upstream.send(_SAME + self._identity)
                answer = upstream.recv(_LONGEST)
            except (_NotThereError, OSError):
                time.sleep(_PAUSE)
                continue
            if answer == _YES:
                upstream.settimeout(None)
                self._upstream = upstream
                return
            upstream.close()
            if answer:
                break
        if not self._closed:
            log.warning("%s is shared by other processes now, and this one keeps what it has", self._shown)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Serve, or watch the serving process."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if self._listener is not None:
                selector.register(self._listener, selectors.EVENT_READ)
            if self._upstream is not None:
                selector.register(self._upstream, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select():
                    ready = key.fileobj
                    if ready is self._listener:
                        self._accept(selector)
                    elif ready is self._upstream:
                        self._follow(selector)
                    elif ready in self._clients:
                        assert isinstance(ready, socket.socket)
                        if not self._answer(ready):
                            selector.unregister(ready)
                            self._clients.discard(ready)
                            ready.close()

    def _follow(self, selector: selectors.BaseSelector) -> None:
        """Wait for the end of the serving process, which closes the connection.

        It sends nothing after its answer, so that the socket becomes readable only then.
        """
        assert self._upstream is not None
        with contextlib.suppress(OSError):
            if self._upstream.recv(_LONGEST):
                return
        selector.unregister(self._upstream)
        self._upstream.close()
        self._upstream = None
        with contextlib.suppress(DescriptorServiceError):
            self._succeed()
        for candidate in (self._listener, self._upstream):
            if candidate is not None:
                selector.register(candidate, selectors.EVENT_READ)

    @property
    def _shown(self) -> str:
        return f"the memory {self.name}"

    def _close_sockets(self) -> None:
        for connection in (self._wake, self._woken, self._listener, self._upstream, *self._clients):
            if connection is not None:
                connection.close()


def _user(peer: socket.socket) -> int:
    """Return the user id of the process at the other end of a socket."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _send_descriptor(client: socket.socket, descriptor: int) -> None:
    client.sendmsg([_YES], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])


def _receive_descriptor(upstream: socket.socket) -> tuple[bytes, int]:
    """Return an answer, and the descriptor sent with it (−1 for none)."""
    size = array.array("i").itemsize
    answer, extra, _, _ = upstream.recvmsg(_LONGEST, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            (descriptor,) = struct.unpack("i", data[:size])
            return answer, descriptor
    return answer, -1


#: Services of this process.
_services: "weakref.WeakSet[DescriptorService]" = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """Close the inherited sockets in a forked process, so that they end with the parent."""
    for service in list(_services):
        service._close_sockets()


os.register_at_fork(after_in_child=_leave_to_the_parent)
