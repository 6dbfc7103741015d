"""The line between launch and what it has started on another machine: when it breaks, both ends know.

Launch writes into the standard input of an ssh process: a request, then orders of one byte each, and a beat every few
seconds. The other end reads them; the end of its input means that launch or the connection is gone, and silence means
that the network is.
"""

import contextlib
import os
import select
import subprocess
import threading
import time
import weakref

from .. import config

#: Exit code of ssh where there is no connection, or no more, and of what has ended because its line is broken.
NO_CONNECTION = 255
BEAT, TERMINATE, KILL = b"\n", b"t", b"k"
#: Bytes of a line that are kept.
LONGEST_LINE = 1 << 20


class Lifeline:
    """Launch's end.

    Args:
        popen: ssh, whose standard input is a pipe without a buffer.
        first: what is written at once.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", first: bytes) -> None:
        assert popen.stdin is not None
        self._pipe = popen.stdin
        self._lock = threading.Lock()  # the thread that beats must not meet a number that is somebody else's by now
        os.set_blocking(self._pipe.fileno(), False)
        self.send(first)
        _heart.keep(self)

    def send(self, data: bytes) -> None:
        """Write; a connection that takes nothing any more shows itself in another way."""
        with self._lock, contextlib.suppress(BlockingIOError, BrokenPipeError):
            if not self._pipe.closed:
                self._pipe.write(data)

    def cut(self) -> None:
        """Let go: the other end ends what it has started."""
        with self._lock, contextlib.suppress(OSError):
            self._pipe.close()


class _Heart:
    """Beats on all lifelines, in one thread that is there as soon as there is a lifeline."""

    def __init__(self) -> None:
        self._lines: weakref.WeakSet[Lifeline] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(self, line: Lifeline) -> None:
        """Beat on this one, too, until nobody has it any more."""
        with self._lock:
            self._lines.add(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)
                self._thread.start()

    def _beat(self) -> None:
        while True:
            time.sleep(config.LAUNCH_BEAT)
            with self._lock:
                lines = list(self._lines)
            for line in lines:
                line.send(BEAT)


_heart = _Heart()


class Tether:
    """The other end: what this process is told over its standard input."""

    def __init__(self) -> None:
        self._rest = b""
        self._heard = time.monotonic()
        self._ended = False

    def broken(self, lease: float) -> str:
        """Why nobody is there any more, after `lease` seconds of silence or at once; "" where somebody is."""
        if self._ended:
            return "launch, or the connection to it, has ended"
        if time.monotonic() - self._heard > lease:
            return f"nothing has been heard from launch for {lease:.0f} s"
        return ""

    def listen(self, seconds: float, *wake: int) -> bytes:
        """Wait for orders, until one of the file descriptors `wake` can be read, or for some seconds."""
        if self._rest:
            orders, self._rest = self._rest, b""
            return orders
        ready, _, _ = select.select([*([] if self._ended else [0]), *wake], [], [], seconds)
        if 0 not in ready:
            return b""
        data = os.read(0, 65536)
        self._heard = time.monotonic()
        self._ended = not data
        return data

    def line(self, lease: float) -> bytes | None:
        """Wait for the next line that is not empty; None when nobody is there any more.

        A line over LONGEST_LINE bytes arrives without its end, and so as JSON that nobody can read.
        """
        text = b""
        while b"\n" not in text and not self.broken(lease):
            text = (text[:LONGEST_LINE] + self.listen(min(1.0, lease))).lstrip(BEAT)
        line, newline, self._rest = text.partition(b"\n")
        return line[:LONGEST_LINE] if newline else None
