"""Heartbeats from a thread, with --elastic, for a worker whose main thread is busy.

A worker that trains sends heartbeats itself, between two iterations. It cannot while it writes a
checkpoint, or while MXNet waits in C++. The thread does not know whether the process hangs: it
sends heartbeats only during an activity that has a name and a time limit, and stops at the limit,
so that the others go on without a worker that hangs.
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
        name: what the worker does, for the warning that it takes too long.
        until: the time limit, in seconds of the monotonic clock; 0 once the warning has been given.
        beat: sends a heartbeat; called in the thread.
    """

    name: str
    until: float
    beat: Callable[[], None]


class Heartbeats:
    """Sends heartbeats in a thread, which starts with the first activity.

    Args:
        every: seconds between two heartbeats.
        limit: seconds of one activity during which they are sent.
    """

    def __init__(self, every: float, limit: float) -> None:
        self._every, self._limit = every, limit
        self._activities: list[Activity] = []  # under way, the innermost last
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def during(self, what: str, beat: Callable[[], None]) -> Iterator[None]:
        """Call `beat` again and again within a with statement, for no longer than the limit.

        Args:
            what: what the body does, for the warning that it takes longer than that.
            beat: sends a heartbeat; must not wait.
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
        """End the thread; no heartbeat is sent after this returns."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._every):
            for activity in self._activities[-1:]:
                if time.monotonic() < activity.until:
                    activity.beat()
                elif activity.until:
                    activity.until = 0.0
                    log.warning(
                        "%s has taken more than %g s: the others are no longer told that this worker is alive",
                        activity.name,
                        self._limit,
                    )
