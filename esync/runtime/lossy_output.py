"""Output that a full disk costs nothing but output: what finds no space is left out, counted and marked."""

import errno
import io
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
    """What standard output could not take, as a sentence part; "" where nothing is missing."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if isinstance(raw, LossyFile) and raw.missing:
        return f"{raw.missing} bytes of standard output could not be written: {raw.why}"
    return ""
