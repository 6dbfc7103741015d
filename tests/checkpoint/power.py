"""A disk that loses, when the power fails, what was not flushed to it: files' contents, new names, renames, deletions.

`VolatileDisk` works on a real folder with the real calls, and only listens to fsync: what a file had in it at its last
one, and which names a folder had in it at its own last one, is what outlives the cut. Everything later is there or not
there at the cut, name by name and file by file, as a source of choices says: a file system promises no order.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

#: Given a number of possibilities, says which one it is, from 0; always 0 loses everything that was not flushed.
Choose = Callable[[int], int]


class PowerLostError(BaseException):
    """The power is gone; raised in whoever goes on to change the disk. Like KeyboardInterrupt it is no Exception."""


class VolatileDisk:
    """Everything below a folder, which is itself there for good.

    Args:
        root: the folder; what is in it when the disk is made, is on the disk.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._contents: dict[int, bytes] = {}  # inode → what the file is known to have in it
        self._names: dict[int, dict[str, int]] = {}  # inode → what the folder is known to have in it, by inode
        self._folders: set[int] = set()  # inodes
        self._held: dict[int, int] = {}  # inode → a handle, so that no other file gets its number
        for folder, _, files in os.walk(root):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                handle = os.open(path, os.O_RDONLY)
                self._flush(handle)
                os.close(handle)

    def close(self) -> None:
        """Let go of all files."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    @contextmanager
    def listening(self, steps: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Take notice of what is flushed; `steps` is called before everything that changes the disk or flushes it."""

        def watched(real: Callable[..., object], after: Callable[..., object] | None = None) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                steps()
                result = real(*arguments, **options)
                if after is not None:
                    after(*arguments)
                return result

            return call

        with mock.patch.object(os, "fsync", watched(os.fsync, self._flush)):
            names = ("replace", "rename", "unlink", "rmdir", "mkdir")
            patches = [mock.patch.object(os, name, watched(getattr(os, name))) for name in names]
            for patch in patches:
                patch.start()
            try:
                yield
            finally:
                for patch in patches:
                    patch.stop()

    def cut(self, place: Path, choose: Choose = lambda possibilities: 0) -> None:
        """Write what the power cut has left of the folder to another place, which is not there yet."""
        self._restore(self.root, os.stat(self.root).st_ino, place, choose)

    def _flush(self, handle: int) -> None:
        found = os.fstat(handle)
        self._hold(handle, found.st_ino)
        if stat.S_ISDIR(found.st_mode):
            names = {entry.name: entry.inode() for entry in os.scandir(handle)}
            self._names[found.st_ino] = names
            self._folders.add(found.st_ino)
            for entry in os.scandir(handle):
                if entry.is_dir():
                    self._folders.add(entry.inode())
                inner = os.open(entry.name, os.O_RDONLY, dir_fd=handle)
                self._hold(inner, entry.inode())
                os.close(inner)
        else:
            self._contents[found.st_ino] = os.pread(handle, found.st_size, 0)

    def _hold(self, handle: int, inode: int) -> None:
        if inode not in self._held:
            self._held[inode] = os.dup(handle)

    def _restore(self, now: Path | None, inode: int, place: Path, choose: Choose) -> None:
        """Put a folder to its place, of which `now` is what the running system sees."""
        place.mkdir()
        seen = {entry.name: entry for entry in os.scandir(now)} if now is not None else {}
        flushed = self._names.get(inode, {})
        for name in sorted({*seen, *flushed}):
            kept = flushed.get(name)
            entry = seen.get(name)
            if (entry.inode() if entry is not None else None) == kept or not choose(2):
                # What the name led to when the folder was flushed.
                same = entry if entry is not None and entry.inode() == kept else None
                if kept is not None:
                    self._put(same, kept, kept in self._folders, place / name, choose)
            elif entry is not None:
                self._put(entry, entry.inode(), entry.is_dir(), place / name, choose)

    def _put(self, entry: "os.DirEntry[str] | None", inode: int, folder: bool, place: Path, choose: Choose) -> None:
        if folder:
            self._restore(Path(entry.path) if entry is not None else None, inode, place, choose)
        elif entry is not None and choose(2):
            shutil.copyfile(entry.path, place)
        else:
            place.write_bytes(self._contents.get(inode, b""))


class Power:
    """Fails after so many steps, and stays away.

    Args:
        steps: that are taken before it fails.
    """

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        """One more."""
        self.left -= 1
        if self.left < 0:
            raise PowerLostError
