"""The lock of a directory of checkpoints, which keeps a second run out.

Each worker locks its rank while its process lives. The operating system keeps the lock (POSIX
record locks, which NFS knows, too), so it ends with the process, whatever kills that. The file of
the lock says who holds it, and stays when the lock is released.
"""

import contextlib
import json
import logging
import os
import socket
import time
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from .. import config
from ..runtime.files import flush_file, lock_file, make_folder
from .store import CheckpointError

log = logging.getLogger(__name__)

#: Seconds between two attempts to lock.
PAUSE = 0.1


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a lock, as written into the file of the lock.

    Attributes:
        host: name of its machine; "" where the file does not say.
        pid: its process id.
        job: number of its job; 0 before that has begun.
    """

    host: str = ""
    pid: int = 0
    job: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.host else "another process"


class _LockedFile:
    """A locked file, open as long as something in this process refers to it.

    A process has each file open once: whichever of its handles is closed first would end the lock.
    """

    _mine: ClassVar[weakref.WeakValueDictionary[Path, "_LockedFile"]] = weakref.WeakValueDictionary()

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle
        weakref.finalize(self, os.close, handle)

    @classmethod
    def opened(cls, path: Path) -> "_LockedFile":
        """Open a file and lock it; return the same object where this process has locked it already.

        Raises:
            BlockingIOError: another process has locked it.
            OSError: it cannot be opened.
        """
        path = path.resolve()
        opened = cls._mine.get(path)
        if opened is not None:
            return opened
        file = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
        if not lock_file(file._handle, path, "no other run writes its checkpoints there", inherited=False):
            raise BlockingIOError
        cls._mine[path] = file
        return file

    def sign(self, holder: LockOwner) -> None:
        """Write the owner into the file, so that other machines see it, too."""
        content = json.dumps(asdict(holder)).encode()
        os.pwrite(self._handle, content, 0)
        os.ftruncate(self._handle, len(content))
        flush_file(self._handle, self._path)


class RankLock:
    """The lock by which this process alone writes one rank's parts in a directory.

    Args:
        directory: holds the checkpoints.
        rank: of the worker.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self._directory, self._rank = directory, rank
        self._path = directory / f".rank-{rank}.lock"
        self._file: _LockedFile | None = None

    def acquire(self) -> None:
        """Take the lock, until `release` or until this process ends; make the directory if need be.

        A process that is just ending has a moment to let go of it.

        Raises:
            CheckpointError: another process keeps it, or the directory cannot be written.
        """
        limit, announced = time.monotonic() + config.CHECKPOINTS_IN_USE, False
        while not self._taken():
            if time.monotonic() > limit:
                raise CheckpointError(self._refusal())
            if not announced:
                log.warning("waiting for %s, which writes checkpoints to %s", self._holder(), self._directory)
                announced = True
            time.sleep(PAUSE)

    def sign(self, job: int) -> None:
        """Write down for which job this process writes.

        A replacement writes without the lock if its predecessor, which hangs or whose machine has
        vanished, still holds it.

        Raises:
            CheckpointError: another job has it, or the directory cannot be written.
        """
        if not self._taken(job):
            if self._holder().job not in (0, job):
                raise CheckpointError(self._refusal())
            log.warning("%s still holds %s; this worker writes in its place", self._holder(), self._path)

    def release(self) -> None:
        """Release the lock, so that another process can take it."""
        self._file = None

    def _taken(self, job: int = 0) -> bool:
        """Take the lock and sign it, if possible; return whether this process has it."""
        try:
            make_folder(self._directory)
            self._file = self._file or _LockedFile.opened(self._path)
            self._file.sign(LockOwner(socket.gethostname(), os.getpid(), job))
        except BlockingIOError:
            return False
        except OSError as error:
            raise CheckpointError(f"cannot write checkpoints to {self._directory}: {error.strerror or error}") from None
        return True

    def _holder(self) -> LockOwner:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return LockOwner(**json.loads(self._path.read_text(encoding="utf-8")))
        return LockOwner()

    def _refusal(self) -> str:
        return (
            f"another run writes its checkpoints to {self._directory}: {self._holder()} is its worker {self._rank}; "
            "wait for its end, end it, or choose another --checkpoint-dir (where its machine is gone for good, delete "
            f"{self._path})"
        )
