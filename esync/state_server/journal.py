"""Journal of a job: a file with one line per message, each with a checksum.

A line consists of eight hexadecimal digits (CRC-32 of the rest), a blank, and JSON without blanks. The
first line, the head, contains the job's complete state. The others are messages in the order in which
they were handled. Each is written by a single write before its message is answered, so that nothing is
lost when the process ends, even by kill -9. There is no fsync of messages, which would protect against a crash of
the *machine*, but add milliseconds to every answer.
"""

import errno
import json
import logging
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import config
from ..runtime.files import write_atomically

logger = logging.getLogger("esync.state_server")

Entry = list[Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode


class DamagedJournalError(ValueError):
    """Raised when the head of a journal cannot be read."""


@dataclass
class Contents:
    """The readable content of a journal.

    Attributes:
        head: the job's state before the messages.
        entries: the readable messages.
        damage: problem of the rest, or "". An incomplete last line is not damage, because its message
            was not answered.
    """

    head: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    damage: str = ""


def encode(entry: Any) -> bytes:
    """Return an entry as a line of the journal."""
    text = _encode(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(line: bytes) -> Any:
    """Return the entry that a line of the journal holds.

    Raises:
        ValueError: the line is incomplete or damaged.
    """
    if line[-1:] != b"\n" or line[8:9] != b" " or int(line[:8], 16) != zlib.crc32(line[9:-1]):
        raise ValueError("not a whole line")
    return json.loads(line[9:-1])


def read(path: Path) -> Contents:
    """Read a journal as far as it is intact.

    Raises:
        DamagedJournalError: its head cannot be read.
        OSError: the file cannot be read.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        head = decode(lines[0])
        if head["format"] != 1:
            raise ValueError
    except (ValueError, LookupError, TypeError):
        raise DamagedJournalError(f"the journal {path} has no readable head") from None
    contents = Contents(head)
    for number, line in enumerate(lines[1:], start=2):
        try:
            contents.entries.append(decode(line))
        except ValueError:
            if number < len(lines) or line.endswith(b"\n"):
                contents.damage = f"line {number} of {len(lines)}"
            break
    return contents


class Journal:
    """Writes the journal of one job; not thread-safe, because the job holds its lock.

    While no file is open, such as after a restart, the next message begins a new one.

    Args:
        path: the journal's file.
        head: returns the job's state; called to start a new file.
    """

    def __init__(self, path: Path, head: Callable[[], dict[str, Any]]) -> None:
        self.path = path
        self._head = head
        self._file: int | None = None
        self._size, self._compacted_size = 0, 0
        self._closed, self._retry_at = False, 0.0

    def begin(self) -> None:
        """Write the head to a new file, which replaces the old one.

        Raises:
            OSError: the file cannot be written.
        """
        line = encode(self._head())
        write_atomically(self.path, line)
        self._close_file()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._size = self._compacted_size = len(line)

    def append(self, entry: Entry) -> None:
        """Write a message whose effect is already in the job's state.

        A full disk does not stop the training: the error is logged, and the journal periodically tries
        to write the complete state to a new file.
        """
        if self._closed:
            return
        try:
            if self._file is None:
                if time.monotonic() >= self._retry_at:
                    self.begin()
                return
            line = encode(entry)
            if self._size + len(line) > max(config.JOURNAL_BYTES, 4 * self._compacted_size):
                self.begin()
                return
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, "no room for a whole line")
            self._size += len(line)
        except OSError as error:
            self._close_file()
            self._retry_at = time.monotonic() + config.JOURNAL_RETRY
            logger.error("cannot write the journal %s: %s; a restart now would lose the job", self.path, error.strerror)

    def close(self, delete: bool = False) -> None:
        """Stop writing, and delete the file if it is no longer needed."""
        self._close_file()
        self._closed = True
        if delete:
            self.path.unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
