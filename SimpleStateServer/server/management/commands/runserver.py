"""`manage.py runserver`: Django's own, with a state server in it and answers that leave at once.

Django's development server writes an answer in two pieces. On a connection that is kept open, Nagle's algorithm holds
the second one back until the worker's machine has acknowledged the first, which takes it 40 ms.
"""

import argparse
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import runserver
from django.core.servers.basehttp import WSGIServer

from esync.errors import ExpectedError
from esync.files import expanded

from ... import access, service, state_folder


class PromptServer(WSGIServer):
    """Django's development server with TCP_NODELAY on its connections."""

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        return connection, address


class Command(runserver.Command):
    """Takes the place of Django's command of the same name."""

    server_cls = PromptServer

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what the state server needs to Django's flags."""
        super().add_arguments(parser)
        parser.add_argument("--insecure", action="store_true", help="listen on other addresses without ESYNC_TOKEN")

    def check_migrations(self) -> None:
        """Do nothing: the history brings its tables up to date itself."""

    def inner_run(self, *args: Any, **options: Any) -> None:
        """Start a state server around Django's own work."""
        given = os.environ.get(state_folder.VARIABLE)
        try:
            token = access.token(self.addr, options["insecure"])
            with tempfile.TemporaryDirectory(prefix="esync-state-server-") as temporary:
                state_dir = expanded(given) if given else state_folder.default(int(self.port))
                running = service.start(Path(temporary) if not given and int(self.port) == 0 else state_dir, token)
                try:
                    super().inner_run(*args, **options)
                finally:
                    running.close()
        except ExpectedError as error:
            raise CommandError(str(error)) from None
