"""Output that survives hostile text, floods of messages and a full disk.

`printable` escapes control characters in text from outside; `is_label` says whether a text can be
shown as it is. `RateLimitedLog` limits messages that
anybody can cause by sending something. `LossyFile` drops output for which the disk has no space,
counts it, and marks the place.
"""

import errno
import io
import math
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


#: Characters of a label that a figure has room for.
LABEL_LENGTH = 60


def printable(text: str) -> str:
    r"""Return `text` with every unprintable character written as an escape, such as \x1b."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def is_label(text: str) -> bool:
    """Return whether figures and tables can show a text as a label."""
    return bool(text) and text == text.strip() and len(text) <= LABEL_LENGTH and text.isprintable()


def all_printable(content: Any) -> Any:
    """Return parsed JSON with all of its texts printable."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [all_printable(one) for one in content]
    if isinstance(content, dict):
        return {printable(name): all_printable(one) for name, one in content.items()}
    return content


#: Seconds between two messages of one kind.
EVERY = 10.0


class RateLimit:
    """Admits a limited number of lines in a period, and counts the others.

    Args:
        lines: number of lines to admit in each period.
        seconds: length of a period, which begins with its first line.
    """

    def __init__(self, lines: int, seconds: float) -> None:
        self._lines, self._seconds = lines, seconds
        self._since, self._seen = -math.inf, 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were left out before this one, or None to leave this one out."""
        left_out = 0
        if now - self._since >= self._seconds:
            left_out = max(0, self._seen - self._lines)
            self._since, self._seen = now, 0
        self._seen += 1
        return left_out if self._seen <= self._lines else None


class RateLimitedLog:
    """Passes on at most one message in a period, and says how many were left out before it.

    Args:
        say: called with each message that is passed on.
        every: length of a period in seconds.
    """

    def __init__(self, say: Callable[[str], None], every: float = EVERY) -> None:
        self._say, self._limit = say, RateLimit(1, every)

    def __call__(self, text: str) -> None:
        """Pass on a message, or count it."""
        left_out = self._limit.admit(time.monotonic())
        if left_out is not None:
            self._say(f"{text} (and {left_out} more of this kind before)" if left_out else text)


#: Errors that mean that there is no space left for this file, user or group.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class LossyFile(io.FileIO):
    """A file, opened for writing, that drops data for which there is no space.

    When there is space again, a line says how many bytes are missing at that place.

    Attributes:
        missing: number of bytes dropped so far.
        why: the error, in words; "" while nothing is missing.
    """

    missing = 0
    why = ""
    _gap = 0

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write as much of `data` as there is space for; always return the length of `data`."""
        left = memoryview(data).cast("B")
        length = len(left)
        try:
            if self._gap:
                super().write(f"\n[{self._gap} bytes of output are missing here: {self.why}]\n".encode())
                self._gap = 0
            while left:
                left = left[super().write(left) or 0 :]
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.why = error.strerror or str(error)
            self.missing += len(left)
            self._gap += len(left)
        return length

    def close(self) -> None:
        """Close the file; a network file system may report only now that there was no space."""
        try:
            super().close()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.why = error.strerror or str(error)


def install() -> None:
    """Make this program's standard output and standard error drop data that a full disk refuses.

    Streams that are not files (terminals, pipes) stay as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            mode = os.fstat(stream.fileno()).st_mode
        except (AttributeError, OSError, ValueError):  # closed, or replaced by somebody
            continue
        if stream.isatty() or not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            continue
        stream.flush()
        raw = LossyFile(stream.fileno(), "wb", closefd=False)
        buffer = raw if stream.write_through else io.BufferedWriter(raw)  # the former with python -u
        kept = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
        setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, **kept))


def missing() -> str:
    """Return what standard output has dropped, as part of a sentence; "" if nothing."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if isinstance(raw, LossyFile) and raw.missing:
        return f"{raw.missing} bytes of standard output could not be written: {raw.why}"
    return ""
