"""Files and folders: atomic writes, home directories, and what earlier runs have left."""

import argparse
import contextlib
import glob
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from .errors import ExpectedError

#: Beginning of the names of folders that have what an earlier run has left.
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
    whole = os.path.expanduser(path)
    first = os.fspath(path).partition(os.sep)[0]
    if first.startswith("~") and str(whole) == os.fspath(path):
        raise NoHomeError(f"{path}: this machine knows no home directory {first}; write the path out, or ./{path}")
    return Path(whole)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path whose file replaces `path` when the block ends.

    An exception leaves `path` as it was.

    The name begins with a dot and ends with this process's id, so that nobody takes it for the file
    itself, and two processes never use the same one.

    Raises:
        OSError: the file cannot be written, flushed or renamed; its `filename` is `path`, and
            nothing is left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        if error.filename in (None, str(beside)):  # the kernel names no file where one could not be written
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def through_memory(path: Path) -> Iterator[Path]:
    """Yield the path of a file in memory, which is copied to `path` when the block ends.

    It is for files that MXNet writes. MXNet does not give the reason if the disk is full, and at
    the end of a file it does not even notice.

    Raises:
        OSError: the file cannot be written.
    """
    with open(os.memfd_create(path.name), "rb") as memory:
        yield Path(f"/proc/self/fd/{memory.fileno()}")
        with open(path, "wb") as file:
            shutil.copyfileobj(memory, file)


def leftovers(path: Path) -> list[Path]:
    """Return the files that killed processes have left beside `path`."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*"))


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`; readers see the old file or the new one, but never a part.

    Raises:
        OSError: the folder cannot be made, or the file cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as beside:
        beside.write_bytes(content)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, so that they survive a power failure."""
    missing = [each for each in path.parents if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in (path, *missing):  # the first one may have been made by somebody else just now
        with contextlib.suppress(PermissionError):  # a folder that may be entered, but not read
            flush_folder(each.parent)


def flush_folder(path: Path) -> None:
    """Flush a folder, so that the names in it survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def earlier_stamp() -> str:
    """Return the name under which what an earlier run has left is kept from now on."""
    return time.strftime(f"{EARLIER_PREFIX}%Y%m%dT%H%M%S")


def make_earlier_folder(folder: Path) -> Path:
    """Make a new folder inside this one for what an earlier run has left there, and return it.

    Raises:
        OSError: it cannot be made.
    """
    aside = folder / earlier_stamp()
    while aside.exists():
        aside = aside.with_name(aside.name + "+")
    aside.mkdir()
    return aside
