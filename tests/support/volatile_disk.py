"""A disk that loses, when the power fails, everything that was not flushed to it.

That may be contents of files, new names, renames, and deletions.

`VolatileDisk` works on a real folder, through the real calls of the standard library. What a file
contained at its last fsync, and which names a folder had in it at its own last one, is what
certainly outlives a power cut. Everything later is there afterwards or not, name by name and file
by file: a file system promises no order.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

#: Given a number of possibilities, says which one it is, from 0; always 0 loses everything that was
#: not flushed, and always 1 loses nothing. `random.Random(seed).randrange`, for instance.
Choose = Callable[[int], int]

#: Methods that change the names in a folder → whether they will, given the path.
_CHANGES: dict[str, Callable[[Path], bool]] = {
    "unlink": Path.exists,
    "mkdir": lambda path: not path.exists(),
    "rmdir": lambda path: True,
    "touch": lambda path: True,
}


class VolatileDisk:
    """Everything below a folder, which itself survives; close it, or use it in a `with` statement.

    Args:
        root: the folder; what is in it when the disk is made, is on the disk.
        step: called before everything that changes the disk or flushes it; may raise, and then
            nothing has changed.
    """

    def __init__(self, root: Path, step: Callable[[], object] = lambda: None) -> None:
        self.root, self._step = root, step
        self._contents: dict[int, bytes] = {}  # inode → what the file is known to contain
        self._names: dict[int, dict[str, int]] = {}  # inode → what the folder is known to have in it, by inode
        self._held: dict[int, int] = {}  # inode → a handle, so that no other file gets its number
        self._flush_all()

    def __enter__(self) -> "VolatileDisk":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have all that this process does to files below the folder happen on this disk."""
        replace, fsync = os.replace, os.fsync

        def on_replace(source: Path, target: Path) -> None:
            if self._holds(Path(target)):
                self._step()
            replace(source, target)

        def on_fsync(handle: int) -> None:
            if self._holds(Path(os.readlink(f"/proc/self/fd/{handle}"))):
                self._step()
                self._flush(handle)
            else:
                fsync(handle)

        def watched(name: str, changes: Callable[[Path], bool]) -> Callable[..., None]:
            method = getattr(Path, name)

            def call(path: Path, *arguments: object, **options: object) -> None:
                if self._holds(path) and changes(path):
                    self._step()
                method(path, *arguments, **options)

            return call

        methods = {name: watched(name, changes) for name, changes in _CHANGES.items()}
        with mock.patch.multiple(os, replace=on_replace, fsync=on_fsync), mock.patch.multiple(Path, **methods):
            yield

    def lose_power(self, choose: Choose = lambda possibilities: 0) -> None:
        """Leave in the folder what a power cut leaves of it, which is on the disk then."""
        contents: dict[Path, bytes | None] = {}
        self._collect(os.stat(self.root).st_ino, self.root, self.root, choose, contents)
        for entry in os.scandir(self.root):
            if entry.is_dir():
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        for path, content in contents.items():
            if content is None:
                os.mkdir(path)
            else:
                path.write_bytes(content)
        self.close()
        self._contents.clear()
        self._names.clear()
        self._flush_all()

    def _holds(self, path: Path) -> bool:
        return path == self.root or self.root in path.parents

    def _collect(
        self, inode: int, now: Path | None, place: Path, choose: Choose, contents: dict[Path, bytes | None]
    ) -> None:
        """Find out what is left of a folder.

        Args:
            inode: of the folder.
            now: where the running system sees it; None: it was deleted, or another one has its
                name.
            place: where it will be.
            choose: see `Choose`.
            contents: path → content, None for a folder, of all that is left; is added to.
        """
        seen = {entry.name: entry for entry in os.scandir(now)} if now is not None else {}
        flushed = self._names.get(inode, {})
        for name in sorted({*seen, *flushed}):
            entry, before = seen.get(name), flushed.get(name)
            after = entry.inode() if entry is not None else None
            child = before if before == after or not choose(2) else after
            if child is None:
                continue
            path = Path(entry.path) if entry is not None and child == after else None
            if entry.is_dir() if entry is not None and path else self._is_folder(child):
                contents[place / name] = None
                self._collect(child, path, place / name, choose, contents)
            else:
                contents[place / name] = self._content(child, path, choose)

    def _is_folder(self, inode: int) -> bool:
        return stat.S_ISDIR(os.fstat(self._held[inode]).st_mode)

    def _content(self, inode: int, now: Path | None, choose: Choose) -> bytes:
        """Return what is left of a file: what was flushed or written, or a part of the latter."""
        flushed = self._contents.get(inode, b"")
        content = now.read_bytes() if now is not None else flushed
        if content == flushed:
            return flushed
        outcome = choose(3)
        if outcome == 2:
            return content[: choose(len(content) + 1)]
        return content if outcome else flushed

    def _flush_all(self) -> None:
        for folder, _, files in os.walk(self.root):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                handle = os.open(path, os.O_RDONLY)
                self._flush(handle)
                os.close(handle)

    def _flush(self, handle: int) -> None:
        """Note what a file contains, or a folder has in it."""
        status = os.fstat(handle)
        self._hold(handle, status.st_ino)
        if not stat.S_ISDIR(status.st_mode):
            with open(f"/proc/self/fd/{handle}", "rb") as file:
                self._contents[status.st_ino] = file.read()
            return
        entries = list(os.scandir(handle))
        self._names[status.st_ino] = {entry.name: entry.inode() for entry in entries}
        for entry in entries:
            if entry.inode() not in self._held:
                inner = os.open(entry.name, os.O_RDONLY, dir_fd=handle)
                self._hold(inner, entry.inode())
                os.close(inner)
        self._forget_deleted()

    def _hold(self, handle: int, inode: int) -> None:
        if inode not in self._held:
            self._held[inode] = os.dup(handle)

    def _forget_deleted(self) -> None:
        """Let go of files that are deleted for good."""
        named = {inode for names in self._names.values() for inode in names.values()}
        for inode in [inode for inode in self._held if inode not in named]:
            if not os.fstat(self._held[inode]).st_nlink:
                os.close(self._held.pop(inode))
                self._contents.pop(inode, None)
                self._names.pop(inode, None)
