"""Output that survives hostile text, any encoding, floods of messages, and whatever refuses it.

`prepare` and `say` see to it that nothing that is printed ends anything. `printable` escapes control
characters in text from outside; `is_label` says whether a text can be shown as it is.
`RateLimitedLog` limits messages that anybody can cause by sending something. `LossyFile` drops
output that cannot be written, to a full disk for instance, counts it, and marks the place.
"""

import atexit
import contextlib
import io
import math
import os
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

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


class LossyFile(io.FileIO):
    """A file, opened for writing, that drops data which it cannot write.

    When writing works again, a line says how many bytes are missing at that place.

    Attributes:
        missing: number of bytes dropped so far, without those that a reader who has gone left unread.
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
                written = super().write(left)
                if written is None:  # a pipe that does not block, and is full
                    select.select([], [self], [])
                left = left[written or 0 :]
        except BrokenPipeError:
            pass
        except OSError as error:
            self.why = error.strerror or str(error)
            self.missing += len(left)
            self._gap += len(left)
        return length

    def close(self) -> None:
        """Close the file; a network file system may report only now that there was no space."""
        try:
            super().close()
        except OSError as error:
            self.why = error.strerror or str(error)


def prepare() -> None:
    """Keep what this program prints from ending it, whatever programs of others do to its streams.

    Characters that the encoding of a stream lacks are written as escapes, streams that are closed
    (`>&-`) count as /dev/null, and a reader that has gone (`| head`) is no error at the end.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) < 3:  # or the next files would get these numbers
            pass
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")
    atexit.register(_flush)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except (AttributeError, OSError, ValueError):  # closed, or replaced by somebody; or Python says what is lost
            pass


def say(text: str, stream: TextIO) -> None:
    """Print a line in one piece, so that no other thread's output divides it, unless that is impossible."""
    with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream
        stream.write(f"{text}\n")
        stream.flush()


def install() -> None:
    """Make this program's standard output and standard error drop what cannot be written.

    It is for programs that have more to do than to print.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            number = stream.fileno()
        except (AttributeError, OSError, ValueError):  # closed, or replaced by somebody
            continue
        stream.flush()
        raw = LossyFile(number, "wb", closefd=False)
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
