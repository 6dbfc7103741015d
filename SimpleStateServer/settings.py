"""Django's settings: a handful of JSON calls, no database, no sessions, no templates.

From the environment: ESYNC_ALLOWED_HOSTS, further names (separated by commas) under which workers reach this server.
Addresses like 10.0.0.5 and this machine's own name need not be listed.
"""

import os
import secrets
import socket

from esync import config

DEBUG = False
# Nothing here signs anything that would have to outlive this process, so the key is made anew at each start.
SECRET_KEY = secrets.token_urlsafe(50)

_hostname = socket.gethostname().lower()
_named = os.environ.get("ESYNC_ALLOWED_HOSTS", "").lower().split(",")
ALLOWED_HOSTS = [
    "localhost",
    _hostname,
    _hostname.partition(".")[0],
    *(name.strip() for name in _named if name.strip()),
]

INSTALLED_APPS = ["SimpleStateServer.server"]
ROOT_URLCONF = "SimpleStateServer.urls"
WSGI_APPLICATION = "SimpleStateServer.wsgi.application"

# One middleware: every further one would be paid for in every query of every worker. Protection against cross-site
# request forgery has nothing to protect here: it guards logins that a browser sends along by itself, as cookies, and
# this server knows neither logins nor cookies.
MIDDLEWARE = ["SimpleStateServer.server.hosts.check_host"]

DATA_UPLOAD_MAX_MEMORY_SIZE = config.STATE_SERVER_MAX_BODY
USE_I18N = False
TIME_ZONE = None  # the machine's own, in the log's lines

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        # Of Django's own loggers, only what is an error: a line per request would drown everything else.
        "django": {"handlers": [], "level": "ERROR", "propagate": True},
        "django.server": {"handlers": [], "level": "ERROR", "propagate": True},
        "waitress.queue": {"level": "ERROR"},  # it warns whenever two requests arrive together
    },
}
