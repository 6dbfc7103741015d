"""The parts of a running state server: its jobs, its history, and its access control."""

import os
from pathlib import Path

from ..runtime.errors import ExpectedError
from .auth import AccessControl
from .history import History
from .registry import JobRegistry
from .state_folder import StateFolder, StateFolderError


class Service:
    """The parts of a state server, which the handlers of calls get.

    Args:
        jobs: the jobs.
        history: the history.
        access: decides which requests are let in.
        folder: the state folder, which is closed with the service; None if there is none.
    """

    def __init__(
        self, jobs: JobRegistry, history: History, access: AccessControl, folder: StateFolder | None = None
    ) -> None:
        self.jobs, self.history, self.access, self.folder = jobs, history, access, folder

    def close(self) -> None:
        """Write the rest of the history, and close all files."""
        self.jobs.close()
        self.history.stop()
        if self.folder is not None:
            self.folder.close()


#: The history's SQLite file in the state folder.
HISTORY_FILE = "history.sqlite3"


def start(state_dir: Path, token: str) -> Service:
    """Restore the jobs in the state folder, and start the history.

    Args:
        state_dir: see `state_folder`.
        token: see `AccessControl`.

    Raises:
        ExpectedError: the folder cannot be used, or the database's settings are wrong.
    """
    os.environ["DJANGO_SETTINGS_MODULE"] = "esync.state_server.settings"
    import django
    from django.conf import settings

    folder = StateFolder(state_dir)
    try:
        django.setup()
        _choose_database(folder.path)
        history = History()
        jobs = JobRegistry(folder.jobs, history)
        try:
            jobs.restore()
        except OSError as error:
            raise StateFolderError(f"the jobs in {folder.jobs} cannot be read: {error}") from None
        history.start()
        return Service(jobs, history, AccessControl(token, settings.ALLOWED_HOSTS), folder)
    except BaseException:
        folder.close()
        raise


def _choose_database(folder: Path) -> None:
    """Put the history into the state folder, unless DATABASE_URL names another place.

    The driver of the database is loaded, too.
    """
    from django.core.exceptions import ImproperlyConfigured
    from django.db import connections

    if not os.environ.get("DATABASE_URL"):
        connections.close_all()
        connections.settings["default"]["NAME"] = folder / HISTORY_FILE
    try:
        connections["default"]  # connects to nothing yet
    except ImproperlyConfigured as error:
        raise ExpectedError(
            f"the database of DATABASE_URL needs further packages: pip install 'esync[postgres]' "
            f"({str(error).splitlines()[0]})"
        ) from None
