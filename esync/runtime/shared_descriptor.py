"""Share a file without a name among the processes of one machine.

The processes find one another by a list in the folder for temporary files. Each of them adds a line, by
which the others open the file through /proc while that process lives; the last one to leave removes the
list. Processes of other users cannot read it. If all processes are killed, the file is freed, and only
the list is left.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from .errors import ExpectedError


class OtherTermsError(ExpectedError):
    """Raised when the file of that name was created with other terms."""


class _Sharer(NamedTuple):
    """A process that shares the file: its id and descriptor, the file's identity, and the terms."""

    process: int
    descriptor: int
    device: int
    inode: int
    terms: str

    @property
    def path(self) -> str:
        return f"/proc/{self.process}/fd/{self.descriptor}"

    @property
    def lives(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode)


def join(name: str, terms: str, make: Callable[[], int]) -> int:
    """Return the descriptor of the file shared under a name, which belongs to the caller.

    Args:
        name: a random name, so that it is unique.
        terms: parameters that must be equal in all processes.
        make: creates the file, if no living process shares it, and returns its descriptor.

    Raises:
        OtherTermsError: the file was created with other terms.
        OSError: the list cannot be read or written.
        Exception: `make` has raised it.
    """
    with _sharers(name) as sharers:
        if any(sharer.terms != terms for sharer in sharers):
            raise OtherTermsError(f"the memory {name} was made on other terms")
        descriptor = os.open(sharers[0].path, os.O_RDWR) if sharers else make()
        status = os.fstat(descriptor)
        sharers.append(_Sharer(os.getpid(), descriptor, status.st_dev, status.st_ino, terms))
    return descriptor


def leave(name: str) -> None:
    """Stop sharing the file; its descriptor remains open."""
    with _sharers(name) as sharers:
        sharers[:] = [sharer for sharer in sharers if sharer.process != os.getpid()]


@contextlib.contextmanager
def _sharers(name: str) -> Iterator[list[_Sharer]]:
    """Lock the list, and yield the living processes in it; changes to them are written back."""
    path = Path(tempfile.gettempdir(), name)
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(open(path, "a+", opener=lambda path, flags: os.open(path, flags, 0o600)))
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # else another process has just removed it
                break
        file.seek(0)
        sharers = [sharer for line in file if (sharer := _Sharer(*json.loads(line))).lives]
        try:
            yield sharers
        finally:
            file.truncate(0)
            file.writelines(f"{json.dumps(sharer)}\n" for sharer in sharers)
            if not sharers:
                path.unlink()
