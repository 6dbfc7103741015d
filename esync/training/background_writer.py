"""Write files in a thread, so that training does not wait for a slow disk."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from .. import config
from ..runtime import progress
from ..runtime.files import DISK_FULL, write_atomically

log = logging.getLogger(__name__)

#: A path, and the content to write, or a function of the current content that returns it.
_File = tuple[Path, bytes | Callable[[bytes], bytes]]


class BackgroundWriter:
    """Writes files in a thread, in the order of the calls, and each atomically.

    Pending files are buffered in memory, up to `config.LOG_BACKLOG` bytes. A call beyond that limit blocks,
    with a warning, until the disk has caught up. Use it from one thread.

    Args:
        what: the files, in words, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._changed = threading.Condition()
        self._waiting: deque[_File] = deque()  # the first one is being written
        self._bytes = 0  # total size of the waiting files
        self._late = False  # whether a slow or full disk has been reported
        self._closing = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer of {what}", daemon=True)
        self._thread.start()

    def write(self, path: Path, content: bytes) -> None:
        """Write `content` to a file.

        Raises:
            OSError: an earlier file could not be written; no later ones will be.
        """
        self._enqueue((path, content))

    def update(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        """Replace the content of a file, if it exists, by the result of `change`.

        Raises:
            OSError: see `write`.
        """
        self._enqueue((path, change))

    def flush(self) -> None:
        """Wait until all files have been written.

        Raises:
            OSError: a file could not be written.
        """
        with self._changed:
            self._wait_until(lambda: not self._waiting)

    def close(self) -> None:
        """Wait until all files have been written, and end the thread.

        Raises:
            OSError: a file could not be written.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._check()

    def _enqueue(self, file: _File) -> None:
        with self._changed:
            self._check()
            if self._closing:
                raise ValueError(f"{self._what} are closed")
            if self._waiting and self._bytes + _size(file) > config.LOG_BACKLOG:
                if not self._late:
                    self._late = True
                    log.warning(
                        "the disk does not keep up with %s: training waits for it, with %d files in memory",
                        self._what,
                        len(self._waiting),
                    )
                self._wait_until(lambda: not self._waiting or self._bytes + _size(file) <= config.LOG_BACKLOG)
            self._waiting.append(file)
            self._bytes += _size(file)
            self._changed.notify_all()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._failure is not None or condition())
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (file := self._next()) is not None:
                self._write(*file)
                self._written(file)
        except Exception as error:  # raised again in the calling thread
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _next(self) -> _File | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting[0] if self._waiting else None

    def _written(self, file: _File) -> None:
        with self._changed:
            self._waiting.popleft()
            self._bytes -= _size(file)
            if self._late and not self._waiting:
                self._late = False
                log.warning("the disk has caught up: %s are complete", self._what)
            self._changed.notify_all()

    def _write(self, path: Path, content: bytes | Callable[[bytes], bytes]) -> None:
        """Write a file; make its folder anew if it is gone, and retry while the disk is full."""
        if not path.parent.is_dir():
            progress.warn(f"the folder {path.parent} is gone, and made anew without what has been written so far")
        if callable(content):
            try:
                content = content(path.read_bytes())
            except FileNotFoundError:
                return
        began, full = time.monotonic(), False
        while True:
            try:
                write_atomically(path, content)
                break
            except OSError as error:
                if error.errno not in DISK_FULL or time.monotonic() - began > config.LOG_DISK_FULL:
                    raise
                if not full:
                    log.warning(
                        "cannot write %s: %s; training goes on as long as the logs fit into memory, and they are "
                        "written when there is space again (given up after %.0f s)",
                        path,
                        error.strerror,
                        config.LOG_DISK_FULL,
                    )
                full = True
            time.sleep(config.LOG_DISK_RETRY)
        if full:
            self._late = True
            log.warning("there is space again for %s", self._what)


def _size(file: _File) -> int:
    """Return the approximate size of a waiting file in memory: content, path, and queue entry."""
    return 500 + (0 if callable(file[1]) else len(file[1]))
