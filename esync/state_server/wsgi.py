"""WSGI application of the state server, for Granian (`serving`) or another server of *one* process."""

import os
import signal
import sys
import threading
from multiprocessing import parent_process

from django.core.wsgi import get_wsgi_application

from ..membership.connections import raise_file_limit
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded
from ..runtime.processes import die_with_parent
from . import state_folder
from .service import service

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "esync.state_server.settings")


def _close_at_end() -> None:
    threading.main_thread().join()
    service.close()


if (supervisor := parent_process()) is not None and supervisor.pid is not None:
    die_with_parent(supervisor.pid, signal.SIGKILL)
raise_file_limit()
application = get_wsgi_application()
try:
    service.start(expanded(os.environ[state_folder.VARIABLE]))
except ExpectedError as error:
    sys.exit(str(error))
threading.Thread(target=_close_at_end, name="close").start()  # no daemon: Python waits for it
