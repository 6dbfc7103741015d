"""Loggers in a thread of their own, so that nobody waits for a network."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from .. import config
from ..runtime.watchdog import WatchedWait
from .logger import LoggedRun, Logger, LoggerError, one_line

log = logging.getLogger(__name__)


class BackgroundLogger(Logger):
    """Calls the methods of another logger in a thread.

    Where that logger falls behind by `config.LOGGER_BACKLOG` calls, scalars are left out, with a warning. What
    it raises later than in `begin` ends it, with a warning.

    Args:
        logger: the other one.
    """

    def __init__(self, logger: Logger) -> None:
        self.name = logger.name
        self._logger = logger
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._failed = self._late = False
        self._thread: threading.Thread | None = None

    def begin(self, run: LoggedRun) -> Any:
        """Begin to log a run, and wait for it, at most `config.LOGGER_TIMEOUT` seconds.

        Raises:
            LoggerError: the run cannot be logged, or that took too long.
        """
        begun: Future[Any] = Future()
        self._thread = threading.Thread(target=self._run, args=(run, begun), name=f"logger {self.name}", daemon=True)
        self._thread.start()
        wait = WatchedWait(f"{self.name} to begin the run", config.LOGGER_TIMEOUT)
        if not wait.until(begun.done):
            self._thread = None
            raise LoggerError(f"{self.name} has not begun to log the run within {wait.limit:g} s; can it be reached?")
        return begun.result()

    def write(self, step: int, wall_time: float, scalars: Mapping[str, float | None]) -> None:
        """See `Logger.write`."""
        if self._calls.qsize() < config.LOGGER_BACKLOG:
            self._calls.put(lambda: self._logger.write(step, wall_time, scalars))
        elif not self._late:
            self._late = True
            log.warning("%s does not keep up, and lacks some rounds, the first of them round %d", self.name, step)

    def flush(self) -> None:
        """Have everything written so far, without waiting for it."""
        self._calls.put(self._logger.flush)

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """See `Logger.add_files`."""
        self._calls.put(lambda: self._logger.add_files(name, paths))

    def close(self, error: str = "") -> None:
        """End the log, and wait until everything is written, at most `config.LOGGER_TIMEOUT` seconds."""
        if (thread := self._thread) is None:
            return
        self._calls.put(lambda: self._logger.close(error))
        self._calls.put(None)
        wait = WatchedWait(f"{self.name} to take the rest of the run", config.LOGGER_TIMEOUT)
        if not wait.until(lambda: not thread.is_alive()):
            log.warning("%s has not taken the rest of the run within %g s", self.name, wait.limit)
        self._thread = None

    def _run(self, run: LoggedRun, begun: "Future[Any]") -> None:
        try:
            begun.set_result(self._logger.begin(run))
        except BaseException as error:  # which the caller gets
            begun.set_exception(error)
            return
        while (call := self._calls.get()) is not None:
            if self._failed:
                continue
            try:
                call()
            except BaseException as error:  # of a library, or of the user's logger
                self._failed = True
                log.warning("%s has failed, and the run goes on without it: %s", self.name, one_line(error))
