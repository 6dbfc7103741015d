"""The log files of one worker: `{log_dir}/{device}/iter-N.txt`, one per round, and `run.json` beside them.

A thread writes them, so that a slow disk holds no training up; every file is complete as soon as it has its name.
"""

import fcntl
import json
import logging
import queue
import shutil
import threading
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from . import config
from .errors import ExpectedError
from .files import write_whole
from .lossy_output import DISK_FULL

log = logging.getLogger(__name__)

RUN_FILE = "run.json"
MODEL_FOLDER = "model"  # the final model of rank 0
LOCK_FILE = ".lock"


class LogDirectoryError(ExpectedError):
    """The log directory cannot be used; the message names it and says why."""


def claim(log_dir: Path, device: str, overwrite: bool, rounds: int = 0, rank: int = -1) -> tuple[Path, TextIO]:
    """A folder for this process's logs, and the lock that keeps it for this process while it is open.

    `device` is the name of the folder, "-1", "-2" … behind it where another process of this host has taken it. Logs of
    an earlier run are moved into a folder `earlier-TIME` inside, or deleted where `overwrite` is true. Where this
    process goes on with a run after so many `rounds`, their logs stay; it looks for the folder of its `rank`.

    Raises:
        LogDirectoryError: the folder cannot be made or written.
    """
    try:
        number = 0
        while True:
            folder = log_dir / (device if number == 0 else f"{device}-{number}")
            if rounds and _rank_of(folder) not in (rank, None):
                number += 1
                continue
            folder.mkdir(parents=True, exist_ok=True)
            lock = open(folder / LOCK_FILE, "w")  # noqa: SIM115 - stays open as long as the process
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                lock.close()
                number += 1
        for unfinished in [*folder.glob(".iter-*.txt.*"), *folder.glob(f".{RUN_FILE}.*")]:
            unfinished.unlink()  # of a process that was killed
        if rounds:
            for later in [path for path in folder.glob("iter-*.txt") if _number(path) > rounds]:
                later.unlink()
            return folder, lock
        earlier = [*folder.glob("iter-*.txt"), *folder.glob("*.csv"), *folder.glob(RUN_FILE)]
        earlier += folder.glob(MODEL_FOLDER)
        if earlier and not overwrite:
            aside = folder / time.strftime("earlier-%Y%m%dT%H%M%S")
            while aside.exists():
                aside = aside.with_name(aside.name + "+")
            aside.mkdir()
        for path in earlier:
            if overwrite and path.is_dir():
                shutil.rmtree(path)
            elif overwrite:
                path.unlink()
            else:
                path.rename(aside / path.name)
    except OSError as error:
        raise LogDirectoryError(f"cannot write logs to {log_dir}: {error.strerror or error}") from None
    return folder, lock


def _rank_of(folder: Path) -> int | None:
    """Whose logs are in a folder; None where that is not known."""
    try:
        return int(json.loads((folder / RUN_FILE).read_text())["rank"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("iter-")
    return int(digits) if digits.isdecimal() else 0


class RoundLog:
    """Writes the rounds of one worker.

    Args:
        log_dir: base folder.
        device: cpu, gpu0, gpu1 …
        overwrite: delete an earlier run's logs instead of moving them aside.
        rounds: of this run that have been logged already, by a process that has died; 0 where it begins.
        rank: of this worker, to find its folder again.

    Attributes:
        folder: where the files are.
    """

    def __init__(
        self, log_dir: str | Path, device: str, overwrite: bool = False, rounds: int = 0, rank: int = -1
    ) -> None:
        self.folder, self._lock = claim(Path(log_dir), device, overwrite, rounds, rank)
        self._rounds: dict[int, dict[str, Any]] = {}  # those that may still get an accuracy
        self._queue: queue.SimpleQueue[tuple[Path, bytes] | threading.Event | None] = queue.SimpleQueue()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._write, name="round log", daemon=True)
        self._thread.start()

    def run(self, facts: dict[str, Any]) -> None:
        """Write what is true of the whole run (run.json); may be called again to bring it up to date."""
        self._put(self.folder / RUN_FILE, facts)

    def round(self, number: int, entry: dict[str, Any], keep: bool = False) -> None:
        """Write a round; with `keep` an accuracy may follow."""
        if keep:
            self._rounds[number] = entry
        self._put(self._path(number), entry)

    def text(self, name: str) -> str:
        """What a file beside the rounds holds; "" where it is not there."""
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def write(self, name: str, text: str) -> None:
        """Write a file beside the rounds."""
        self._check()
        self._queue.put((self.folder / name, text.encode()))

    def accuracy(self, number: int, accuracy: float) -> None:
        """The accuracy of the weights that round `number` has ended with has arrived: write that round again."""
        entry = self._rounds.pop(number, None) or self._logged(number)
        if entry is None:
            return  # a round of a process that died before it had logged it
        self._put(self._path(number), {**entry, "accuracy": accuracy})
        for older in [other for other in self._rounds if other < number]:
            del self._rounds[older]

    def flush(self) -> None:
        """Wait until everything so far is written; raises LogDirectoryError if something could not be."""
        done = threading.Event()
        self._queue.put(done)
        while not done.wait(0.1) and self._thread.is_alive():
            pass
        self._check()

    def close(self) -> None:
        """Wait until everything is written; raises LogDirectoryError if something could not be."""
        if not self._lock.closed:
            self._queue.put(None)
            self._thread.join()
            self._lock.close()
        self._check()

    def _logged(self, number: int) -> dict[str, Any] | None:
        """A round that a process before this one has logged."""
        try:
            entry = json.loads(self._path(number).read_text())
        except (OSError, ValueError):
            return None
        return entry if isinstance(entry, dict) else None

    def _path(self, number: int) -> Path:
        return self.folder / f"iter-{number}.txt"

    def _put(self, path: Path, content: dict[str, Any]) -> None:
        self._check()
        self._queue.put((path, json.dumps(content, default=_plain).encode()))

    def _check(self) -> None:
        if self._failure is not None:
            raise LogDirectoryError(f"cannot write logs to {self.folder}: {self._failure.strerror or self._failure}")

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._write_when_there_is_space(*item)
            except OSError as error:
                self._failure = error
                return

    def _write_when_there_is_space(self, path: Path, content: bytes) -> None:
        """Write a file; while the disk is full, wait and try again."""
        began, waited = time.monotonic(), False
        while True:
            try:
                write_whole(path, content)
                break
            except OSError as error:
                if error.errno not in DISK_FULL or time.monotonic() - began > config.LOG_DISK_FULL:
                    raise
                if not waited:
                    log.warning(
                        "cannot write %s: %s; training goes on, and the logs are written when there is space again "
                        "(given up after %.0f s)",
                        path,
                        error.strerror,
                        config.LOG_DISK_FULL,
                    )
                waited = True
            time.sleep(config.LOG_DISK_RETRY)
        if waited:
            log.warning("there is space again: the logs in %s are complete", self.folder)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON can hold them; TypeError for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written to a log file: it should be what JSON can hold, or NumPy's")
