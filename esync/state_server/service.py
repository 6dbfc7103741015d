"""The parts of the running state server: its jobs, its history, its state folder.

Jobs are plain objects in the memory of the one process that answers requests. It has several threads
and one lock: a thread holds `service.lock` during the whole time that it reads or changes jobs, so
that a query never sees half a round.
"""

import threading
from pathlib import Path

from ..runtime.errors import ExpectedError
from .history import History
from .registry import JobRegistry
from .state_folder import StateFolder, StateFolderError


class Service:
    """The parts of a state server.

    Attributes:
        lock: must be held to use `jobs`.
        jobs: the jobs.
        history: the history.
        folder: the state folder; None before `start`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.history = History()
        self.jobs = JobRegistry(history=self.history)
        self.folder: StateFolder | None = None

    def start(self, state_dir: Path) -> None:
        """Restore the jobs in the state folder, and start the history. Django must be set up.

        Raises:
            ExpectedError: the folder cannot be used, or the database's settings are wrong.
        """
        self.folder = StateFolder(state_dir)
        try:
            self.jobs = JobRegistry(self.folder.jobs, self.history)
            try:
                self.jobs.restore()
            except OSError as error:
                raise StateFolderError(f"the jobs in {self.folder.jobs} cannot be read: {error}") from None
            self.history.start()
        except BaseException:
            self.folder.close()
            raise

    def close(self) -> None:
        """Write the rest of the history, and close all files."""
        with self.lock:
            self.jobs.close()
        self.history.stop()
        if self.folder is not None:
            self.folder.close()


#: The parts of this process's state server.
service = Service()


def set_up_django() -> None:
    """Set up Django, which loads the driver of the database for its models.

    Raises:
        ExpectedError: the driver is not installed.
    """
    import django
    from django.core.exceptions import ImproperlyConfigured

    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise ExpectedError(
            f"the database of DATABASE_URL needs further packages: pip install 'esync[postgres]' "
            f"({str(error).splitlines()[0]})"
        ) from None
