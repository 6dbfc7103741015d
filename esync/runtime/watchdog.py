"""Watch waits: announce them, end those that are too long, and handle signals.

While MXNet waits in C++, no Python code of the main thread runs, not even a signal handler. Therefore
another thread watches. After a few seconds it announces the wait, after a limit it ends the wait, and
after a signal it ends the process if the main thread does not return to do so.
"""

import contextlib
import logging
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from .. import config
from . import progress
from .errors import ExpectedError

log = logging.getLogger(__name__)

#: Seconds to wait for the main thread to end after a signal, before the process is ended.
GRACE = 3.0
TICK = 0.25
#: Seconds to wait until MPICH's mpiexec has read the last output of a process, because it reads nothing
#: after the process's end.
READING = 0.3


class WaitTimeoutError(ExpectedError):
    """Raised when a wait has exceeded its limit; the message says for what and how long."""


class InterruptedBySignalError(BaseException):
    """Raised when SIGINT or SIGTERM has arrived; like KeyboardInterrupt, it is not an Exception."""


@dataclass(eq=False)
class WatchedWait:
    """A wait in progress.

    Attributes:
        what: the awaited event, in words that follow "for", or a function that returns them.
        limit: seconds after which the wait is given up.
        hint: what to check if it takes long, or a function that returns it.
        since: time of its start (time.monotonic).
        announced: its duration in seconds at the last announcement.
    """

    what: str | Callable[[], str]
    limit: float
    hint: str | Callable[[], str] = ""
    since: float = field(default_factory=time.monotonic)
    announced: float = 0.0
    _advised: str = ""

    @property
    def awaited(self) -> str:
        """The awaited event in words."""
        return self.what if isinstance(self.what, str) else self.what()

    @property
    def lasted(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self.since

    def due(self, every: float) -> bool:
        """Return whether an announcement is due, which then counts as made."""
        lasted = self.lasted
        if lasted - self.announced < every:
            return False
        self.announced = lasted
        return True

    def until(self, done: Callable[[], bool]) -> bool:
        """Wait until something is done, at most to the limit, and announce that; return whether it is done.

        Args:
            done: whether it is.
        """
        while not (over := done()) and self.lasted < self.limit:
            if self.due(config.ANNOUNCE_AFTER):
                log.warning(self.announcement())
            time.sleep(0.01)
        return over

    def check(self) -> None:
        """Check the limit; for waits that poll in Python.

        Raises:
            WaitTimeoutError: the wait has exceeded its limit.
        """
        if self.lasted > self.limit:
            raise WaitTimeoutError(self.verdict())

    def verdict(self) -> str:
        """Return the error message of a timeout."""
        return f"gave up after {self.lasted:.0f} s of waiting for {self.awaited}{self._advice()}"

    def announcement(self) -> str:
        """Return the message to print during the wait; only the first one contains the hint."""
        limit = f" (until {self.limit:.0f} s)" if self.limit < math.inf else ""
        before, self._advised = self._advised, self._advice()
        advice = self._advised if self._advised != before else ""
        return f"waiting for {self.awaited} for {self.lasted:.0f} s{limit}{advice}"

    def _advice(self) -> str:
        hint = self.hint if isinstance(self.hint, str) else self.hint()
        return f"; {hint}" if hint else ""


class Watchdog:
    """Watches the waits of a process."""

    def __init__(self) -> None:
        self._waits: list[WatchedWait] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wakeup: int | None = None
        self._signalled: float | None = None
        self._grace = GRACE

    @contextmanager
    def waiting(
        self, what: str | Callable[[], str], limit: float, hint: str | Callable[[], str] = ""
    ) -> Iterator[WatchedWait]:
        """Watch a wait in the body of a `with` statement.

        If the body waits in C++ beyond the limit, the process ends with exit code 1. A body that
        polls calls `check` of the wait, which raises an error instead.
        """
        wait = self.begin(WatchedWait(what, limit, hint))
        try:
            yield wait
        finally:
            self.over(wait)

    def begin(self, wait: WatchedWait) -> WatchedWait:
        """Begin to watch a wait that ends elsewhere, and return it."""
        with self._lock:
            self._waits.append(wait)
        self._ensure_thread()
        return wait

    def over(self, wait: WatchedWait) -> None:
        """Stop watching a wait, which is over."""
        with self._lock:
            if wait in self._waits:
                self._waits.remove(wait)

    def handle_signals(self, grace: float = GRACE) -> None:
        """Turn SIGINT and SIGTERM into InterruptedBySignalError; for the main thread only.

        If the main thread is stuck in C++ and cannot raise it, the process ends after `grace`
        seconds.
        """
        self._grace = grace
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _raise)
        self._wakeup = read
        self._ensure_thread()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            self._sleep()
            with self._lock:
                waits = list(self._waits)
            for wait in waits:
                if wait.due(config.ANNOUNCE_AFTER):
                    log.warning(wait.announcement())
                if wait.lasted > wait.limit + GRACE:
                    log.error(wait.verdict())
                    progress.report_event(progress.OVER, reason=wait.verdict())
                    exit_now(1)
            if self._signalled is not None and time.monotonic() - self._signalled >= self._grace:
                log.error("ended by a signal%s", "".join(f" while waiting for {wait.awaited}" for wait in waits))
                exit_now(1)

    def _sleep(self) -> None:
        if self._wakeup is None:
            time.sleep(TICK)
        elif select.select([self._wakeup], [], [], TICK)[0]:
            numbers = os.read(self._wakeup, 64)
            if self._signalled is None and (signal.SIGINT in numbers or signal.SIGTERM in numbers):
                self._signalled = time.monotonic()


@contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once while the body of a `with` statement waits in C++.

    Otherwise Python raises KeyboardInterrupt only after the wait. A program that handles SIGINT
    itself continues to do so.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)  # the process ends already, and must not be interrupted again
    raise InterruptedBySignalError(signal.Signals(number).name)


def exit_now(code: int) -> None:
    """End the process now, from any thread, after flushing all output.

    MXNet's own shutdown would wait for processes that may be gone already.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever was reading is gone
            stream.flush()
    if "PMI_FD" in os.environ:
        time.sleep(READING)
    os._exit(code)
