"""Files and folders: atomic writes, locks, home directories, and files of earlier runs.

Some file systems (NFS, Lustre, FUSE, shared folders of containers and virtual machines) have no locks,
cannot flush folders, or cannot rename. The consequence is then logged once as a warning, and the
program continues.
"""

import argparse
import contextlib
import errno
import fcntl
import glob
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ExpectedError

log = logging.getLogger(__name__)

#: Errors that mean that there is no space left for this file, user or group.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Errors of file systems that cannot rename.
_NO_RENAMING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV)
#: Flag of `memfd_create` (Linux 6.3) for non-executable memory. A system may require it
#: (vm.memfd_noexec=2); older ones do not support it.
_MFD_NOEXEC_SEAL = 8
#: Warnings that this process has logged: file system, unsupported operation, consequence.
_warned: set[tuple[int, str, str]] = set()

#: Prefix of the names of folders with files of an earlier run.
EARLIER_PREFIX = "earlier-"


class NoHomeError(ExpectedError, argparse.ArgumentTypeError):
    """Raised when a path begins with a home directory that does not exist here."""


def expanded(path: str | Path) -> Path:
    """Return a path with a leading `~` or `~user` replaced by that home directory on this machine.

    Shells replace it in `--log-dir ~/logs`, but neither in `--log-dir=~/logs` nor in a file. This
    function is also a type for argparse. Write `./~` for a folder of that name.

    Raises:
        NoHomeError: there is no such home directory.
    """
    full = os.path.expanduser(path)
    first = os.fspath(path).partition(os.sep)[0]
    if first.startswith("~") and str(full) == os.fspath(path):
        raise NoHomeError(f"{path}: this machine knows no home directory {first}; write the path out, or ./{path}")
    if os.fspath(path).startswith(f".{os.sep}~"):
        return Path.cwd() / full  # Path drops the "./" that distinguishes it from a home directory
    return Path(full)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path whose file replaces `path` when the block ends.

    An exception leaves `path` as it was. A device, a pipe or /dev/stdout is not replaced: it is `path` itself that is
    yielded then.

    The name begins with a dot and ends with this process's id, so that it cannot be mistaken for the
    file itself, and is never used by two processes.

    Raises:
        OSError: the file cannot be written, flushed or renamed; its `filename` is `path`, and the
            temporary file is removed.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if _is_stream(path):
        yield path
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            flush_file(file.fileno(), path)
        replace_file(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # an error of `write` contains no file name
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Return whether a path is a device or a pipe, or, as /dev/stdout, a link to an open file of a process."""
    return (path.exists() and not path.is_file()) or (path.is_symlink() and path.readlink().is_relative_to("/proc"))


def replace_file(temporary: Path, path: Path) -> None:
    """Rename a complete file to its final name, so that readers see the old file or the new one.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        os.replace(temporary, path)
    except OSError as error:
        if error.errno not in _NO_RENAMING:
            raise
        _warn(path, error, "be renamed", "whoever reads a file while it is written sees a part")
        shutil.copyfile(temporary, path)
        temporary.unlink()


@contextlib.contextmanager
def through_memory(path: Path) -> Iterator[Path]:
    """Yield the path of a file in memory, which is copied to `path` when the block ends.

    Use it for files that MXNet writes, because MXNet does not report a full disk properly.

    Raises:
        OSError: the file cannot be written.
    """
    with open(memory_descriptor(path.name), "rb") as memory:
        yield Path(f"/proc/self/fd/{memory.fileno()}")
        with open(path, "wb") as file:
            shutil.copyfileobj(memory, file)


def leftovers(path: Path) -> list[Path]:
    """Return the files that killed processes have left beside `path`."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*"))


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: readers see the old file or the complete new one.

    Raises:
        OSError: the folder cannot be created, or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, value: object, **options: Any) -> None:
    """Write a value as indented JSON, atomically; `options` are those of `json.dumps`.

    Raises:
        OSError: see `write_atomically`.
    """
    write_atomically(path, json.dumps(value, indent=2, **options).encode() + b"\n")


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, so that they survive a power failure."""
    missing = [parent for parent in path.parents if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in (path, *missing):  # another process may just have created the first one
        flush_folder(folder.parent)


def flush_folder(path: Path) -> None:
    """Flush a folder, so that the names in it survive a power failure."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder without read permission
        return
    try:
        flush_file(handle, path)
    finally:
        os.close(handle)


def flush_file(descriptor: int, path: Path) -> None:
    """Flush an open file or folder, so that its content survives a power failure.

    Raises:
        OSError: it could not be written.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in (errno.EIO, *DISK_FULL):
            raise
        _warn(path, error, "be flushed", "what is written there may not survive a power failure")


def lock_file(descriptor: int, path: Path, risk: str, inherited: bool = True, wait: bool = False) -> bool:
    """Lock an open file until it is closed or this process ends; return False if another process holds the lock.

    If the file system has no locks, the file counts as locked.

    Args:
        descriptor: descriptor of the file, which is open for writing.
        path: path of the file, for the warning.
        risk: condition that the user must ensure without a lock, for the warning.
        inherited: whether forked processes inherit the lock (flock) or not (lockf).
        wait: whether to wait while another process holds the lock.
    """
    try:
        (fcntl.flock if inherited else fcntl.lockf)(
            descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        )
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        _warn(path, error, "be locked", f"make sure yourself that {risk}")
    return True


def _warn(path: Path, error: OSError, operation: str, consequence: str) -> None:
    """Log, once for each file system, an unsupported operation and its consequence."""
    key = path.parent.stat().st_dev, operation, consequence
    if key not in _warned:
        _warned.add(key)
        log.warning("%s cannot %s (%s): %s", path, operation, error.strerror or error, consequence)


def memory_descriptor(name: str) -> int:
    """Return the descriptor of a new file in memory without a name in any file system.

    If the system refuses `memfd_create`, the file is in the folder for temporary files, because
    /dev/shm is too small for models in many containers.

    Args:
        name: name in the links of /proc, which end with it and " (deleted)".

    Raises:
        OSError: the file cannot be created.
    """
    for flag in (_MFD_NOEXEC_SEAL, 0):
        with contextlib.suppress(OSError):
            return os.memfd_create(name, os.MFD_CLOEXEC | flag)
    with tempfile.TemporaryDirectory() as folder:
        return os.open(Path(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def earlier_stamp() -> str:
    """Return the name for files of an earlier run, with the current time."""
    return time.strftime(f"{EARLIER_PREFIX}%Y%m%dT%H%M%S")


def make_earlier_folder(folder: Path) -> Path:
    """Create a new subfolder for files of an earlier run, and return it.

    Raises:
        OSError: it cannot be created.
    """
    aside = folder / earlier_stamp()
    while aside.exists():
        aside = aside.with_name(aside.name + "+")
    aside.mkdir()
    return aside
