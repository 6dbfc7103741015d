"""Settings of Django, which is used for the database of the history; `asgi` answers requests.

They are read from the environment:
ESYNC_ALLOWED_HOSTS  further names (separated by commas) under which this server is reached.
                     Addresses like 10.0.0.5 and this machine's own name need not be listed.
DATABASE_URL         the database of the history, for instance
                     postgres://user:password@host/name; by default a SQLite file in the state
                     folder.
ESYNC_STATE_DIR      the state folder.
"""

import os
import socket
from typing import Any

from ..runtime.errors import ExpectedError
from ..runtime.files import expanded

DEBUG = False
_hostname = socket.gethostname().lower()
_named = os.environ.get("ESYNC_ALLOWED_HOSTS", "").lower().split(",")
ALLOWED_HOSTS = [
    "localhost",
    _hostname,
    _hostname.partition(".")[0],
    *(name.strip() for name in _named if name.strip()),
]

INSTALLED_APPS = ["esync.state_server"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def _database() -> dict[str, Any]:
    url = os.environ.get("DATABASE_URL", "")
    if url:
        try:
            import dj_database_url
        except ImportError:
            raise ExpectedError(
                "DATABASE_URL is set, but reading it needs further packages: pip install 'esync[postgres]'"
            ) from None
        try:
            database: dict[str, Any] = dict(dj_database_url.parse(url))
        except ValueError:  # its text would repeat the password
            raise ExpectedError(
                "DATABASE_URL cannot be read; it should look like postgres://user:password@host:5432/name"
            ) from None
        return database
    folder = expanded(os.environ.get("ESYNC_STATE_DIR", "."))
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": folder / "history.sqlite3",
        "OPTIONS": {
            # One writes while others read. A crash of the machine may cost the last batches, but
            # never the file.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }


DATABASES = {"default": _database()}

USE_I18N = False
TIME_ZONE = None  # the machine's own, in the log's lines

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "django": {"handlers": [], "level": "ERROR", "propagate": True},
        "uvicorn.error": {"level": "ERROR"},  # it warns of every request that is no HTTP
    },
}
