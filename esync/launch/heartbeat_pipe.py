"""Pipe between launch and a process on another machine, whose loss both ends detect.

Launch writes to the standard input of an ssh process: a request, then orders of one byte each, and
a heartbeat every few seconds. For the process at the other end, the end of its input means that
launch has ended or the connection is closed; silence means that the network is down.
"""

import contextlib
import os
import select
import subprocess
import threading
import time

from .. import config

#: Exit code of ssh when it has no connection, or has lost it, and of a process that has ended
#: because its pipe to launch is broken.
NO_CONNECTION = 255
BEAT, TERMINATE, KILL, PREEMPT = b"\n", b"t", b"k", b"p"


class HeartbeatPipe:
    """Launch's end of the pipe.

    Args:
        popen: the ssh process, whose standard input is an unbuffered pipe.
        first: bytes to write immediately.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", first: bytes) -> None:
        assert popen.stdin is not None
        self._pipe = popen.stdin
        self._lock = threading.Lock()  # the descriptor may be reused once it is closed
        self._ended = threading.Event()
        os.set_blocking(self._pipe.fileno(), False)
        self.send(first)
        threading.Thread(target=self._beat, name="heart", daemon=True).start()

    def send(self, data: bytes) -> None:
        """Write data; errors of the connection are ignored here, and detected by its end."""
        with self._lock, contextlib.suppress(BlockingIOError, BrokenPipeError):
            if not self._pipe.closed:
                self._pipe.write(data)

    def cut(self) -> None:
        """Close the pipe, so that the other end terminates its processes."""
        self._ended.set()
        with self._lock, contextlib.suppress(OSError):
            self._pipe.close()

    def _beat(self) -> None:
        while not self._ended.wait(config.LAUNCH_BEAT):
            self.send(BEAT)


class OrderReader:
    """The other end of the pipe: reads launch's orders from standard input."""

    def __init__(self) -> None:
        self._rest = b""
        self._heard = time.monotonic()
        self._ended = False

    def connection_lost(self, lease: float) -> str:
        """Return why the connection to launch counts as lost, or "" if it does not.

        It is lost after the end of the input, or after `lease` seconds of silence.
        """
        if self._ended:
            return "launch, or the connection to it, has ended"
        if time.monotonic() - self._heard > lease:
            return f"nothing has been heard from launch for {lease:.0f} s"
        return ""

    def listen(self, seconds: float, *wake: int) -> bytes:
        """Wait for orders up to some seconds, and return those that have arrived.

        The wait also ends when one of the file descriptors `wake` is readable.
        """
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
        """Wait for the next line that is not empty; return None when the connection is lost."""
        text = b""
        while b"\n" not in text and not self.connection_lost(lease):
            text = (text + self.listen(min(1.0, lease))).lstrip(BEAT)
        line, newline, self._rest = text.partition(b"\n")
        return line if newline else None
