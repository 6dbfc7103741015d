"""Output that survives hostile text, floods of messages and a full disk.

`printable` escapes control characters in text that comes from others. `RateLimitedLog` limits
messages that anybody can cause by sending something. `LossyFile` drops what a full disk does not
take, counts it and marks the place.
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


def printable(text: str) -> str:
    r"""Return `text` with whatever a terminal would not print written as an escape, such as \x1b."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def all_printable(content: Any) -> Any:
    """Return content that was JSON with all of its texts printable."""
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
    """Admits so many lines in a while, and counts the others.

    Args:
        lines: how many.
        seconds: from the first of them until as many more may pass.
    """

    def __init__(self, lines: int, seconds: float) -> None:
        self._lines, self._seconds = lines, seconds
        self._since, self._seen = -math.inf, 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were left out before this one, or None where it is left out itself."""
        left_out = 0
        if now - self._since >= self._seconds:
            left_out = max(0, self._seen - self._lines)
            self._since, self._seen = now, 0
        self._seen += 1
        return left_out if self._seen <= self._lines else None


class RateLimitedLog:
    """Passes on a text at most once in a while, and says how many were left out before it.

    Args:
        say: takes the text.
        every: seconds.
    """

    def __init__(self, say: Callable[[str], None], every: float = EVERY) -> None:
        self._say, self._limit = say, RateLimit(1, every)

    def __call__(self, text: str) -> None:
        """Pass it on, or count it."""
        left_out = self._limit.admit(time.monotonic())
        if left_out is not None:
            self._say(f"{text} (and {left_out} more of this kind before)" if left_out else text)


#: Errors of a file system that has no space left for this file, user or group.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class LossyFile(io.FileIO):
    """A file opened for writing that drops what it has no space for.

    Where there is space again, a line says how many bytes are missing at that place.

    Attributes:
        missing: bytes left out so far.
        why: the error, in words; "" while nothing is missing.
    """

    missing = 0
    why = ""
    _gap = 0

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write all of `data`, or as much as there is space for; the length of `data` either way."""
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
        """Close the file; file systems on a network may say only now that there was no space."""
        try:
            super().close()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.why = error.strerror or str(error)


def install() -> None:
    """Let standard output and standard error of this program drop what a full disk does not take.

    Streams that are no file (terminals, pipes) stay as they are.
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
    """Return what standard output could not take, as a sentence part; "" where nothing is missing."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if isinstance(raw, LossyFile) and raw.missing:
        return f"{raw.missing} bytes of standard output could not be written: {raw.why}"
    return ""
