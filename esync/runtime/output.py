"""Output that is robust against hostile text, encodings, floods of messages, and write errors.

`prepare` and `write_line` prevent that printing ends a program. `printable` escapes control characters in
untrusted text; `is_label` returns whether a text can be shown unchanged. `RateLimitedLog` limits
messages that anybody on the network can cause. `LossyFile` drops output that cannot be written, for
instance to a full disk, counts it, and marks the gap.
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
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


#: Largest length of a label in characters.
LABEL_LENGTH = 60


def printable(text: str) -> str:
    r"""Return `text` with every unprintable character written as an escape, such as \x1b."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def is_label(text: str) -> bool:
    """Return whether figures and tables can show a text as a label."""
    return bool(text) and text == text.strip() and len(text) <= LABEL_LENGTH and text.isprintable()


class RateLimitedLog:
    """Passes on a limited number of messages in 10 seconds, with the number of messages dropped before.

    Args:
        emit: called with each message that is passed on.
        limit: number of messages to pass on in each period, which begins with its first message.
    """

    def __init__(self, emit: Callable[[str], None], limit: int = 1) -> None:
        self._emit, self._limit = emit, limit
        self._since, self._seen = -math.inf, 0

    def __call__(self, text: str) -> None:
        """Pass on a message, or count it."""
        now, left_out = time.monotonic(), 0
        if now - self._since >= 10.0:
            left_out = max(0, self._seen - self._limit)
            self._since, self._seen = now, 0
        self._seen += 1
        if self._seen <= self._limit:
            self._emit(f"{text} (and {left_out} more of this kind before)" if left_out else text)


class LossyFile(io.FileIO):
    """A file, opened for writing, that drops data which it cannot write.

    When writing succeeds again, a line with the number of missing bytes marks the gap.

    Attributes:
        missing: number of dropped bytes, without those after the reader of a pipe has ended.
        why: the error, in words; "" while nothing is missing.
    """

    missing = 0
    why = ""
    _gap = 0

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write as much of `data` as possible; always return the length of `data`."""
        remaining = memoryview(data).cast("B")
        length = len(remaining)
        try:
            if self._gap:
                super().write(f"\n[{self._gap} bytes of output are missing here: {self.why}]\n".encode())
                self._gap = 0
            while remaining:
                written = super().write(remaining)
                if written is None:  # a non-blocking pipe that is full
                    select.select([], [self], [])
                remaining = remaining[written or 0 :]
        except BrokenPipeError:
            pass
        except OSError as error:
            self.why = error.strerror or str(error)
            self.missing += len(remaining)
            self._gap += len(remaining)
        return length

    def close(self) -> None:
        """Close the file; a network file system may report a full disk only now."""
        try:
            super().close()
        except OSError as error:
            self.why = error.strerror or str(error)


def prepare() -> None:
    """Prepare the standard streams, so that printing does not end this program.

    Characters that the encoding of a stream lacks are escaped, closed streams (`>&-`) are replaced by
    /dev/null, and a pipe whose reader has ended (`| head`) is no error at the end.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) < 3:  # otherwise the next files would get these numbers
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
        except (AttributeError, OSError, ValueError):  # closed or replaced; or Python says what is lost
            pass


def write_line(text: str, stream: TextIO) -> None:
    """Print a line with a single write, so that output of other threads does not split it; ignore errors."""
    with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream
        stream.write(f"{text}\n")
        stream.flush()


def install() -> None:
    """Let standard output and standard error drop what cannot be written.

    Use it for programs whose purpose is not their output.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            number = stream.fileno()
        except (AttributeError, OSError, ValueError):  # closed or replaced
            continue
        stream.flush()
        raw = LossyFile(number, "wb", closefd=False)
        buffer = raw if stream.write_through else io.BufferedWriter(raw)  # the former with python -u
        settings = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
        setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, **settings))


def missing() -> str:
    """Return a clause about the bytes that standard output has dropped; "" for none."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if isinstance(raw, LossyFile) and raw.missing:
        return f"{raw.missing} bytes of standard output could not be written: {raw.why}"
    return ""
