"""State folder of a server: the journals, and the history if that is in SQLite.

STATE/jobs/NAME.journal     journal of a job
STATE/history.sqlite3       the history, unless DATABASE_URL names another database
STATE/lock                  locked by the server that uses the folder
"""

import os
from pathlib import Path

from ..runtime.errors import ExpectedError
from ..runtime.files import expanded, lock_file

VARIABLE = "ESYNC_STATE_DIR"


class StateFolderError(ExpectedError):
    """Raised when the folder cannot be used; the message says why and what to do."""


def from_environment() -> Path | None:
    """Return the state folder in ESYNC_STATE_DIR; None if that is not set."""
    name = os.environ.get(VARIABLE)
    return expanded(name) if name else None


def default(port: int) -> Path:
    """Return this user's state folder for the server on that port."""
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        root = Path(base) if base else Path.home() / ".local" / "state"
    except RuntimeError:
        raise StateFolderError("this user has no home folder: say with --state-dir where to keep the jobs") from None
    return root / "esync" / f"state-server-{port}"


class StateFolder:
    """A state folder that only this process uses, until it is closed.

    Raises:
        StateFolderError: the folder cannot be made or written, or another server uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.jobs = self.path / "jobs"
        try:
            self.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "ab")  # noqa: SIM115 - stays open as long as the server
            probe = self.jobs / ".probe"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise StateFolderError(
                f"the state folder {self.path} cannot be written: {error.strerror or error}; choose another one with "
                f"--state-dir or {VARIABLE}"
            ) from None
        if not lock_file(self._lock.fileno(), self.path / "lock", "no other state server uses this folder"):
            self._lock.close()
            raise StateFolderError(
                f"another state server uses the state folder {self.path}: end it, or give this one a folder of its own "
                f"with --state-dir or {VARIABLE}"
            )

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()
