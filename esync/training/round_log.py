"""Log files of one worker: `{log_dir}/{device}/iter-N.txt` for each round, and `run.json`.

A thread writes them; every file is complete as soon as it has its name.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.files import lock_file, make_earlier_folder
from .background_writer import BackgroundWriter

RUN_FILE = "run.json"
MODEL_FOLDER = "model"  # the final model of rank 0
LOCK_FILE = ".lock"


class LogDirectoryError(ExpectedError):
    """Raised when the log directory cannot be used; the message names it and says why."""


def claim(log_dir: Path, device: str, overwrite: bool, rounds: int = 0, rank: int = -1) -> tuple[Path, TextIO]:
    """Return a folder for this process's logs, and the lock that reserves it while it is open.

    The folder's name is `device`, followed by "-1", "-2" … if other processes of this host have locked
    it. Logs of an earlier run are moved to a subfolder `earlier-TIME`, or deleted if `overwrite` is
    true. If this process continues a run after `rounds` rounds, their logs are kept, and it uses the
    folder of its `rank`.

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
            lock = open(folder / LOCK_FILE, "w", encoding="utf-8")  # noqa: SIM115 - stays open as long as the process
            if lock_file(lock.fileno(), folder / LOCK_FILE, "no other process writes its logs there"):
                break
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
            aside = make_earlier_folder(folder)
        for path in earlier:
            if overwrite and path.is_dir():
                shutil.rmtree(path)
            elif overwrite:
                path.unlink()
            else:
                shutil.move(path, aside / path.name)
    except OSError as error:
        raise LogDirectoryError(f"cannot write logs to {log_dir}: {error.strerror or error}") from None
    return folder, lock


def _rank_of(folder: Path) -> int | None:
    """Return the rank whose logs are in a folder; None if unknown."""
    try:
        return int(_facts_of(folder)["rank"])
    except (ValueError, KeyError, TypeError):
        return None


def loggers_of(folder: Path) -> dict[str, Any]:
    """Return what identifies the run of these logs with each logger, by its name; see `loggers.Logger.begin`."""
    references = _facts_of(folder).get("loggers")
    return references if isinstance(references, dict) else {}


def _facts_of(folder: Path) -> dict[str, Any]:
    """Return the content of run.json; nothing where it cannot be read."""
    try:
        facts = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("iter-")
    return int(digits) if digits.isdecimal() else 0


class RoundLog:
    """Writes the rounds of one worker.

    Args:
        log_dir: base folder.
        device: cpu, gpu0, gpu1 …
        overwrite: delete an earlier run's logs instead of moving them aside.
        rounds: number of rounds of this run logged by an earlier process; 0 at the beginning.
        rank: this worker's rank, which identifies its folder.

    Attributes:
        folder: the folder of the files.
    """

    def __init__(
        self, log_dir: str | Path, device: str, overwrite: bool = False, rounds: int = 0, rank: int = -1
    ) -> None:
        self.folder, self._lock = claim(Path(log_dir), device, overwrite, rounds, rank)
        self._writer = BackgroundWriter(f"the logs in {self.folder}")

    def run(self, facts: dict[str, Any]) -> None:
        """Write the facts of the run (run.json); call it again to update them."""
        self._write(RUN_FILE, _encoded(facts))

    def round(self, number: int, entry: dict[str, Any]) -> None:
        """Write the file of a round."""
        self._write(f"iter-{number}.txt", _encoded(entry))

    def evaluation(self, number: int, values: Mapping[str, Any]) -> None:
        """Add the evaluation of the weights at the end of a round to its file.

        Does nothing if that round has not been logged.
        """

        def with_evaluation(content: bytes) -> bytes:
            try:
                return _encoded({**json.loads(content), **values})
            except (ValueError, TypeError):  # not of this program
                return content

        with self._failures_named():
            self._writer.update(self.folder / f"iter-{number}.txt", with_evaluation)

    def text(self, name: str) -> str:
        """Return the content of a file beside the rounds; "" if it does not exist."""
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def write(self, name: str, text: str) -> None:
        """Write a file beside the rounds."""
        self._write(name, text.encode())

    def flush(self) -> None:
        """Wait until all files are written.

        Raises:
            LogDirectoryError: a file could not be written.
        """
        with self._failures_named():
            self._writer.flush()

    def close(self) -> None:
        """Wait until all files are written, and unlock the folder.

        Raises:
            LogDirectoryError: a file could not be written.
        """
        with self._failures_named(), self._lock:
            self._writer.close()

    def _write(self, name: str, content: bytes) -> None:
        with self._failures_named():
            self._writer.write(self.folder / name, content)

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogDirectoryError(f"cannot write logs to {self.folder}: {error.strerror or error}") from None


def _encoded(content: dict[str, Any]) -> bytes:
    # Names of files that are not UTF-8 contain characters that are invalid in JSON.
    return json.dumps(content, default=_plain, ensure_ascii=False).encode(errors="replace")


def _plain(value: Any) -> Any:
    """Convert NumPy's numbers and arrays for JSON.

    Raises:
        TypeError: the value has another type.
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written to a log file: it should be what JSON can hold, or NumPy's")
