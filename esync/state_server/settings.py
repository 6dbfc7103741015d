"""Settings of the Django project.

They are read from the environment:
ESYNC_ALLOWED_HOSTS  further names (separated by commas) under which this server is reached.
                     Addresses like 10.0.0.5 and this machine's own name need not be listed.
ESYNC_TOKEN          the token that callers must send; empty: no authentication.
DATABASE_URL         the database of the history, for instance
                     postgres://user:password@host/name; by default a SQLite file in the state
                     folder.
ESYNC_STATE_DIR      the state folder; by default that of a server on the default port.
"""

import os
import socket
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.management.utils import get_random_secret_key

from .. import config, web
from ..runtime.errors import ExpectedError
from . import state_folder

PACKAGE = Path(__file__).parent

DEBUG = False
SECRET_KEY = get_random_secret_key()  # nothing is signed
ROOT_URLCONF = "esync.state_server.urls"
WSGI_APPLICATION = "esync.state_server.wsgi.application"
INSTALLED_APPS = ["esync.state_server", "django.contrib.staticfiles"]  # the first one's command runserver is used
MIDDLEWARE = [
    "esync.state_server.middleware.RequestMiddleware",
    "esync.state_server.middleware.AccessMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
]
APPEND_SLASH = False

# --- access ---------------------------------------------------------------------------------------

ALLOWED_HOSTS = ["*"]  # AccessMiddleware accepts all addresses, but only known names
_HOSTNAME = socket.gethostname().lower()
HOST_NAMES = {
    "localhost",
    _HOSTNAME,
    _HOSTNAME.partition(".")[0],
    *(name.strip() for name in os.environ.get("ESYNC_ALLOWED_HOSTS", "").lower().split(",") if name.strip()),
}
TOKEN = os.environ.get("ESYNC_TOKEN", "")
#: Headers of pages and their files; `responses` has those of JSON.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
SILENCED_SYSTEM_CHECKS = [
    "security.W001",  # SecurityMiddleware would add its headers to every answer to a worker, for a tenth of its time …
    "security.W002",  # … and so would XFrameOptionsMiddleware; PAGE_HEADERS has them
    "security.W003",  # there are no cookies with which to forge requests, and foreign origins are refused
]

# --- files of the dashboard, which hold no data ---------------------------------------------------

STATIC_URL = "/dashboard/assets/"
STATICFILES_DIRS = [PACKAGE / "dashboard", Path(web.__file__).parent]
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 0
WHITENOISE_ALLOW_ALL_ORIGINS = False


def WHITENOISE_ADD_HEADERS_FUNCTION(headers: Any, path: str, url: str) -> None:  # noqa: N802 - WhiteNoise's name
    """Add the headers of every file of the dashboard."""
    for name, value in PAGE_HEADERS.items():
        headers[name] = value


# --- the history ----------------------------------------------------------------------------------


def _database() -> dict[str, Any]:
    url = os.environ.get("DATABASE_URL", "")
    if url:
        try:
            return dict(dj_database_url.parse(url))
        except ValueError:  # its text would repeat the password
            raise ExpectedError(
                "DATABASE_URL cannot be read; it should look like postgres://user:password@host:5432/name"
            ) from None
    folder = state_folder.from_environment() or state_folder.default(int(config.STATE_SERVER_PORT))
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": folder / "history.sqlite3",
        "OPTIONS": {
            # Reads are possible during a write. A crash of the machine may lose the last batches, but
            # does not damage the file.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_I18N = False
TIME_ZONE = None  # the machine's own, in the log's lines

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"django": {"handlers": [], "level": "CRITICAL", "propagate": True}},  # `responses` logs errors
}
