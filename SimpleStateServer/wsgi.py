"""`application`, for any WSGI server. It must run in one single process: the records live in its memory."""

import os

from django.core.wsgi import get_wsgi_application

os.environ["DJANGO_SETTINGS_MODULE"] = "SimpleStateServer.settings"

application = get_wsgi_application()
