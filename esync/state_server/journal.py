"""Journal of a job: a line with a checksum for each message, in a file that outlives the process.

A line is eight hexadecimal digits (CRC-32 of the rest), a blank, and JSON without blanks. The first
one, the head, holds the job's whole state; the others are messages in the order in which they were
taken. A line is written with one plain write before its message is answered, so the end of the
process, kill -9 included, loses nothing. There is no fsync: that would guard against the end of the
*machine*, and cost every answer milliseconds.
"""

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

logger = logging.getLogger("esync.state_server")

Entry = list[Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode


class DamagedJournalError(ValueError):
    """The head of a journal cannot be read."""


@dataclass
class Contents:
    """The readable content of a journal.

    Attributes:
        head: the state that the messages start from.
        head_length: bytes of its line.
        entries: the messages, as far as they are whole.
        length: bytes of the file up to there.
        damage: what is wrong with the rest, "" if there is none; a line that the end of the process
            cut off is not damage: nobody was answered.
    """

    head: dict[str, Any]
    head_length: int
    entries: list[Entry] = field(default_factory=list)
    length: int = 0
    damage: str = ""


def encode(entry: Any) -> bytes:
    """Return `entry` as a line."""
    text = _encode(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(line: bytes) -> Any:
    """Return what `encode` was given. Raises ValueError where the line is not whole."""
    if line[-1:] != b"\n" or line[8:9] != b" " or int(line[:8], 16) != zlib.crc32(line[9:-1]):
        raise ValueError("not a whole line")
    return json.loads(line[9:-1])


def read(path: Path) -> Contents:
    """Read a journal as far as it is whole.

    Raises:
        DamagedJournalError: not even its head is.
        OSError: the file cannot be read.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        head = decode(lines[0])
        if head["format"] != 1:
            raise ValueError
    except (ValueError, LookupError, TypeError):
        raise DamagedJournalError(f"the journal {path} has no readable head") from None
    contents = Contents(head, len(lines[0]), length=len(lines[0]))
    for number, line in enumerate(lines[1:], start=2):
        try:
            contents.entries.append(decode(line))
        except ValueError:
            if number < len(lines) or line.endswith(b"\n"):
                contents.damage = f"line {number} of {len(lines)}"
            break
        contents.length += len(line)
    return contents


class Journal:
    """Writes the journal of one job. Not safe for several threads: the job's lock is held.

    Args:
        path: its file.
        head: returns the job's state; called when the file is begun anew.
        limit: bytes at which that is done.
    """

    def __init__(self, path: Path, head: Callable[[], dict[str, Any]], limit: int = config.JOURNAL_BYTES) -> None:
        self.path = path
        self._head, self._limit = head, limit
        self._file: int | None = None
        self._size, self._least = 0, 0
        self._broken, self._retry_at = False, 0.0

    def begin(self) -> None:
        """Write the head into a new file, which takes the old one's place. Raises OSError where it cannot."""
        line = encode(self._head())
        beside = self.path.with_name(self.path.name + ".new")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write(file, line)
            os.replace(beside, self.path)
        except BaseException:
            os.close(file)
            beside.unlink(missing_ok=True)
            raise
        self._take(file, len(line), len(line))

    def resume(self, contents: Contents) -> None:
        """Go on behind what could be read of the file that is there. Raises OSError where it cannot."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.ftruncate(file, contents.length)
        except BaseException:
            os.close(file)
            raise
        self._take(file, contents.length, contents.head_length)

    def append(self, entry: Entry) -> None:
        """Write one message that the job's state has taken in already.

        A disk that is full does not stop the training: the error is logged, and from time to time
        the whole state is tried to be written anew, so that nothing is missing once there is room
        again.
        """
        if self._file is None:
            return
        try:
            if self._broken:
                if time.monotonic() >= self._retry_at:
                    self.begin()
                return
            line = encode(entry)
            if self._size + len(line) > max(self._limit, 4 * self._least):
                self.begin()
                return
            _write(self._file, line)
            self._size += len(line)
        except OSError as error:
            self._broken, self._retry_at = True, time.monotonic() + config.JOURNAL_RETRY
            logger.error("cannot write the journal %s: %s; a restart now would lose the job", self.path, error.strerror)

    def close(self, delete: bool = False) -> None:
        """Stop writing; `delete` the file as well, where nobody will need it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if delete:
            self.path.unlink(missing_ok=True)

    def _take(self, file: int, size: int, least: int) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._size, self._least, self._broken = file, size, least, False


def _write(file: int, line: bytes) -> None:
    if os.write(file, line) < len(line):
        raise OSError(28, "no room for a whole line")
