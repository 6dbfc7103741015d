"""WSGI application of the state server, for Granian (`serving`) or another server of *one* process."""

import os
import signal
import sys
import threading
from multiprocessing import parent_process

from django.core.wsgi import get_wsgi_application

from ..membership.connections import raise_file_limit
from ..runtime.errors import ExpectedError
from ..runtime.processes import die_with_parent
from . import state_folder
from .service import service, set_up_django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "esync.state_server.settings")


def _close_at_end() -> None:
    threading.main_thread().join()
    service.close()


def _end_copy() -> None:
    """End a process that the web server has forked from this one, such as a worker of gunicorn --preload.

    It would have separate jobs.
    """
    os.write(2, b"the state server is one process: start the web server so that it does not fork\n")
    os._exit(3)  # with this code, gunicorn does not start another one


if (supervisor := parent_process()) is not None and supervisor.pid is not None:
    die_with_parent(supervisor.pid, signal.SIGKILL)
raise_file_limit()
try:
    folder = state_folder.from_environment()
    if folder is None:
        raise ExpectedError(f"{state_folder.VARIABLE} should name the state folder")
    set_up_django()
    application = get_wsgi_application()
    service.start(folder)
except ExpectedError as error:
    sys.exit(str(error))
os.register_at_fork(after_in_child=_end_copy)
threading.Thread(target=_close_at_end, name="close").start()  # not a daemon, so that Python waits for it
