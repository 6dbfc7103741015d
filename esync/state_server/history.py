"""Write the history to the database in the background: a bounded queue and one thread.

Answers to workers never wait for the database. If it is slow or unreachable, the queue fills up, and
further entries are dropped and counted. The thread also migrates the database's tables when it first
reaches it.
"""

import logging
import time
from collections import deque
from threading import Event, Thread
from typing import Any

from .. import config
from .history_entries import HistoryEntry

logger = logging.getLogger("esync.state_server")


class History:
    """The queue of history entries, and the thread that writes them.

    Attributes:
        dropped: number of entries that were not written to the database.
        ready: event that is set when the database's tables exist.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.ready = Event()
        self._queue: deque[HistoryEntry] = deque()
        self._stop = Event()
        self._deadline = float("inf")
        self._thread: Thread | None = None

    def add(self, item: HistoryEntry) -> None:
        """Have an entry written, without waiting for it."""
        if len(self._queue) >= config.HISTORY_QUEUE:
            self.dropped += 1
            return
        self._queue.append(item)  # atomic

    # --- the thread -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread = Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the rest of the queue, within `config.STATE_SERVER_FAREWELL` seconds, and end the thread."""
        self._deadline = time.monotonic() + config.STATE_SERVER_FAREWELL
        self._stop.set()
        if self._thread is not None:
            self._thread.join(config.STATE_SERVER_FAREWELL)

    def _run(self) -> None:
        from . import history_writer

        self._until_done(history_writer.prepare)
        self.ready.set()
        while not self._stop.wait(config.HISTORY_INTERVAL):
            self._write_all()
        self._write_all()
        history_writer.disconnect()

    def _write_all(self) -> None:
        from . import history_writer

        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), config.HISTORY_BATCH))]
            written = self._until_done(lambda batch=batch: history_writer.write(batch))
            self.dropped += len(batch) - (written or 0)

    def _until_done(self, action: Any) -> int | None:
        """Repeat an action while the database cannot be reached.

        Returns None if the server ends before the action succeeds.
        """
        from django.db import Error

        from . import history_writer

        pause, logged = 0.1, False
        while True:
            try:
                result: int = action()
            except Error as error:
                history_writer.disconnect()
                if not logged:
                    logger.error("the database of the history cannot be reached, trying again: %s", str(error).strip())
                    logged = True
            except Exception:  # a bug must not end the history permanently
                logger.exception("an entry of the history could not be written")
                return 0
            else:
                if logged:
                    logger.error("the database of the history is back")
                return result
            if time.monotonic() + pause > self._deadline:
                return None
            self._stop.wait(pause) if not self._stop.is_set() else time.sleep(pause)
            pause = min(2 * pause, config.HISTORY_RETRY_MAX)
