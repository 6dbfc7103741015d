"""Memory that several processes of a machine share, without a file that could be left over (Linux).

It is a file of `files.memory_descriptor`, which exists while a process has it open or mapped, so that
nothing remains when all processes have ended. Processes of the same user find it in /proc by its name.
Its bytes can be locked. Locks belong to a process: the kernel releases them when the process ends, even
by SIGKILL, and forked processes do not inherit them. They are also released when the process closes any
descriptor of the file.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import ExpectedError
from .files import memory_descriptor

#: struct flock: type, origin, start, length, and the process that holds a conflicting lock.
_FLOCK = struct.Struct("hhqqi4x")
#: Seconds between two attempts to get a lock: the first pause, its growth factor, the longest pause.
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.00005, 1.5, 0.002


class SharedMemoryError(ExpectedError):
    """Raised when memory cannot be shared; the message says why."""


class NameTakenError(ExpectedError):
    """Raised when a name cannot be reserved, or another process keeps it for too long."""


class MemoryFile:
    """Shared memory of a fixed size, and locks on single bytes of it.

    Args:
        descriptor: descriptor of the file, which belongs to this object from now on.
        size: required number of bytes.

    Attributes:
        descriptor: the descriptor; −1 after `close`.
        size: number of bytes.
        memory: the bytes.

    Raises:
        SharedMemoryError: the file has another size, or is not shared memory.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size = descriptor, size
        self._process = os.getpid()
        self._lock = threading.Lock()  # the kernel's locks do not distinguish threads
        try:
            status = os.fstat(descriptor)
            if status.st_size != size:
                raise SharedMemoryError(f"expected memory of {size} bytes, got a file of {status.st_size}")
            self.memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        except OSError as error:
            os.close(descriptor)
            raise SharedMemoryError(f"cannot map {size / 1e6:.1f} MB of shared memory: {error.strerror}") from None
        except SharedMemoryError:
            os.close(descriptor)
            raise

    @classmethod
    def create(cls, name: str, size: int) -> "MemoryFile":
        """Create shared memory, initialized with zeros.

        It is completely allocated, so that no later access fails for lack of memory.

        Args:
            name: name by which `find` finds it.
            size: number of bytes.

        Raises:
            SharedMemoryError: there is not enough memory.
        """
        descriptor = -1
        try:
            descriptor = memory_descriptor(name)
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise SharedMemoryError(f"cannot allocate {size / 1e6:.1f} MB of shared memory: {error.strerror}") from None
        return cls(descriptor, size)

    @classmethod
    def find(cls, name: str) -> "MemoryFile | None":
        """Return the shared memory of that name in which another process holds a lock; None if there is none."""
        for link in _links(name):
            try:
                descriptor = os.open(link, os.O_RDWR)
            except OSError:  # that process has ended
                continue
            if _holder(descriptor, 0, 0):
                return cls(descriptor, os.fstat(descriptor).st_size)
            os.close(descriptor)  # its processes have ended, but for those that they have forked
        return None

    # --- locks ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, byte: int, check: Callable[[int], None]) -> Iterator[None]:
        """Hold a lock exclusively, among all threads of all processes, in a `with` statement.

        Args:
            byte: number of the lock.
            check: called repeatedly while another process holds the lock, with that process's id;
                may raise an exception to give up.
        """
        with self._lock:
            pause = _FIRST_PAUSE
            while not self.hold(byte):
                check(self.holder(byte))
                time.sleep(pause)
                pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
            try:
                yield
            finally:
                self.release(byte)

    def hold(self, byte: int) -> bool:
        """Acquire a lock until `release` or the end of this process; return whether it was free."""
        try:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def release(self, byte: int) -> None:
        """Release a lock."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, byte)

    def holder(self, byte: int) -> int:
        """Return the id of the other process that holds a lock; 0 if there is none.

        For a process in another namespace, it is an unspecified number other than 0.
        """
        return _holder(self.descriptor, byte, 1)

    def close(self) -> None:
        """Release all locks and the memory, which is freed with the last array in it.

        In a forked process, the locks are not touched.
        """
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            del self.memory


def _holder(descriptor: int, start: int, length: int) -> int:
    """Return the id of another process that holds a lock on these bytes; a length of 0 reaches to the end."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    return 0 if kind == fcntl.F_UNLCK else process or -1


def _links(name: str) -> Iterator[Path]:
    """Yield the links in /proc to files of `memory_descriptor` that other processes of this user have open."""
    for process in Path("/proc").glob("[0-9]*"):
        links: list[Path] = []
        if process.name != str(os.getpid()):
            with contextlib.suppress(OSError):  # it belongs to another user, or has ended
                links += (process / "fd").iterdir()
        for link in links:
            with contextlib.suppress(OSError):  # it has been closed
                if os.readlink(link).endswith((f":{name} (deleted)", f"/{name} (deleted)")):
                    yield link


@contextlib.contextmanager
def exclusive(name: str, patience: float) -> Iterator[None]:
    """Exclude all other processes of this machine that use the same name, in a `with` statement.

    The name is that of an abstract Unix socket, which disappears with its process.

    Args:
        name: the name.
        patience: seconds to wait for another process.

    Raises:
        NameTakenError: another process keeps the name for longer, or the system refuses it.
    """
    limit, pause = time.monotonic() + patience, _FIRST_PAUSE
    with socket.socket(socket.AF_UNIX) as owner:
        while True:
            try:
                owner.bind(f"\0{name}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise NameTakenError(f"cannot reserve the name {name}: {error.strerror}") from None
                if time.monotonic() > limit:
                    raise NameTakenError(f"another process has kept {name} for {patience:g} s") from None
            time.sleep(pause)
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
        yield
