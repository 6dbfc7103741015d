"""With --elastic: a thread that speaks for a worker whose main thread is busy, for as long as it may be.

A worker that trains says by itself, between two iterations, that it is alive. While it writes a checkpoint, or MXNet
waits in C++, no Python code of its main thread does. The thread does not find out whether the process hangs: it speaks
only during an activity that has a name and a limit, and is silent from the limit on, so that who hangs is left out.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Activity:
    """Something that keeps the main thread busy.

    Attributes:
        what: it does.
        until: when it should be over at the latest, by the monotonic clock; seconds.
        beat: tells the others that this worker is alive; called in the thread.
    """

    what: str
    until: float
    beat: Callable[[], None]


class Heartbeats:
    """The thread, which begins with the first activity.

    Args:
        every: seconds between two calls.
        limit: seconds that one activity may last.
    """

    def __init__(self, every: float, limit: float) -> None:
        self._every, self._limit = every, limit
        self._activities: list[Activity] = []  # that are under way, the innermost last
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def during(self, what: str, beat: Callable[[], None]) -> Iterator[None]:
        """Call `beat` again and again while the body of a with statement runs, but for no longer than the limit.

        Args:
            what: the body does, for the line that says so when it takes longer than that.
            beat: must not wait.
        """
        activity = Activity(what, time.monotonic() + self._limit, beat)
        self._activities.append(activity)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self._activities.remove(activity)

    def close(self) -> None:
        """End the thread; it is silent when this returns."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._every):
            for activity in self._activities[-1:]:
                if time.monotonic() < activity.until:
                    activity.beat()
                elif activity.until:
                    activity.until = 0.0  # is said once
                    log.warning(
                        "%s has taken more than %g s: the others are no longer told that this worker is alive",
                        activity.what,
                        self._limit,
                    )
