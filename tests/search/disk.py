"""A disk on which nothing is safe before it was flushed, and a power cut that proves it.

Files are real ones, in a folder of this machine; what changes them goes through a few functions of the standard
library, which `Disk.attached` replaces. Of every name that was changed (a file renamed or deleted, a folder made or
deleted) it remembers how it was before, until the folder is flushed. A power cut undoes what was not flushed, and cuts
files that were not.
"""

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock


@dataclass
class Change:
    """One change of the names in a folder that was not flushed yet.

    Attributes:
        folder: in which.
        undo: makes the names what they were.
        kept: a further name of the file that was there before, so that it can come back.
    """

    folder: Path
    undo: Callable[[], object]
    kept: Path | None = None


class Disk:
    """A disk with a folder in which files are written.

    Args:
        place: an empty folder for it.
        step: called before everything that changes the disk; may raise, and then nothing has changed.

    Attributes:
        root: the folder for files.
    """

    def __init__(self, place: Path, step: Callable[[], None]) -> None:
        self.root, self._aside, self._step = place / "disk", place / "aside", step
        self.root.mkdir(parents=True)
        self._aside.mkdir()
        self._changes: list[Change] = []
        self._flushed: set[int] = set()  # inodes of files
        self._links = 0

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have all that this process does to files within the folder happen on this disk."""
        replace, fsync = os.replace, os.fsync
        unlink, rmdir, mkdir, touch = Path.unlink, Path.rmdir, Path.mkdir, Path.touch

        def on_replace(source: Any, target: Any) -> None:
            if self._holds(target := Path(target)):
                self._step()
                kept = self._keep(target)
                self._note(target.parent, lambda: self._put_back(target, kept), kept)
            replace(source, target)

        def on_fsync(handle: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if not self._holds(path):
                fsync(handle)
                return
            self._step()
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                self._flush(path)
            else:
                self._flushed.add(status.st_ino)

        def on_unlink(path: Path, missing_ok: bool = False) -> None:
            if self._holds(path) and path.exists():
                self._step()
                kept = self._keep(path)
                self._note(path.parent, lambda: self._put_back(path, kept), kept)
            unlink(path, missing_ok)

        def on_rmdir(path: Path) -> None:
            if self._holds(path):
                self._step()
            rmdir(path)
            if self._holds(path):
                self._note(path.parent, lambda: os.mkdir(path))

        def on_mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
            new = self._holds(path) and not path.exists()
            if new:
                self._step()
            mkdir(path, mode, parents, exist_ok)
            if new:
                self._note(path.parent, lambda: shutil.rmtree(path, ignore_errors=True))

        def on_touch(path: Path, *arguments: Any) -> None:
            if self._holds(path):
                self._step()
            touch(path, *arguments)

        with (
            mock.patch.object(os, "replace", on_replace),
            mock.patch.object(os, "fsync", on_fsync),
            mock.patch.object(Path, "unlink", on_unlink),
            mock.patch.object(Path, "rmdir", on_rmdir),
            mock.patch.object(Path, "mkdir", on_mkdir),
            mock.patch.object(Path, "touch", on_touch),
        ):
            yield

    def lose_power(self, chance: random.Random) -> None:
        """Undo what was not flushed: of each folder's changes the first ones may have reached the disk all the same."""
        reached = {}
        for folder in dict.fromkeys(change.folder for change in self._changes):
            changes = sum(change.folder == folder for change in self._changes)
            reached[folder] = chance.choice((0, chance.randrange(changes + 1)))
        lost: list[Change] = []
        for change in self._changes:
            if reached[change.folder] <= 0:
                lost.append(change)
            reached[change.folder] -= 1
        for change in reversed(lost):
            if change.folder.exists():
                change.undo()
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and path.stat().st_ino not in self._flushed:
                if chance.random() < 0.5:
                    os.unlink(path)
                else:
                    os.truncate(path, chance.randrange(path.stat().st_size + 1))
        shutil.rmtree(self._aside)
        os.mkdir(self._aside)
        self._changes.clear()
        self._flushed = {path.stat().st_ino for path in self.root.rglob("*") if path.is_file()}

    def _holds(self, path: Path) -> bool:
        return path == self.root or self.root in path.parents

    def _keep(self, path: Path) -> Path | None:
        """Give the file that is there now a further name, outside; None where there is none."""
        if not path.exists():
            return None
        self._links += 1
        kept = self._aside / str(self._links)
        os.link(path, kept)
        return kept

    def _put_back(self, path: Path, kept: Path | None) -> None:
        if path.exists():
            os.unlink(path)
        if kept is not None:
            os.link(kept, path)

    def _note(self, folder: Path, undo: Callable[[], object], kept: Path | None = None) -> None:
        self._changes.append(Change(folder, undo, kept))

    def _flush(self, folder: Path) -> None:
        """The names in a folder are on the disk for good."""
        for change in self._changes:
            if change.folder == folder and change.kept is not None:
                status = change.kept.stat()
                if status.st_nlink == 1:  # the file is gone for good, and its number may be given to another one
                    self._flushed.discard(status.st_ino)
                os.unlink(change.kept)
        self._changes = [change for change in self._changes if change.folder != folder]
