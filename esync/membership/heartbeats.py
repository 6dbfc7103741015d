"""Heartbeats from a thread, with --elastic, for a worker whose main thread computes or waits.

While the main thread is inside MXNet, loads data or writes a checkpoint, it sends nothing itself.
The thread does not know whether the program hangs: it sends heartbeats only for a limited time
after the program has last made progress, so that the others go on without a worker that hangs.
"""

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Seconds to wait in the end for answers that may never come, because a server is gone.
LAST_ANSWER = 0.5


class Heartbeats:
    """Sends heartbeats in a thread.

    Args:
        every: seconds between two heartbeats.
        limit: seconds without progress after which no more are sent.
    """

    def __init__(self, every: float, limit: float) -> None:
        self._every, self._limit = every, limit
        self._progressed = time.monotonic()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def start(self, beat: Callable[[], None]) -> None:
        """Start to call `beat`, which sends a heartbeat."""
        self._thread = threading.Thread(target=self._run, args=(beat,), name="heartbeats", daemon=True)
        self.progressed()
        self._thread.start()

    def progressed(self) -> None:
        """Record progress, which restarts the limit."""
        self._progressed = time.monotonic()

    def close(self) -> None:
        """End the thread; afterwards no heartbeat is sent, but the last one may still be unanswered."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(LAST_ANSWER)

    def _run(self, beat: Callable[[], None]) -> None:
        warned = -1.0
        while not self._closed.wait(self._every):
            since = self._progressed
            if time.monotonic() < since + self._limit:
                beat()
            elif warned != since:
                warned = since
                log.warning(
                    "no step for more than %g s (half of --round-timeout): the others are no longer told that this "
                    "worker is alive",
                    self._limit,
                )
