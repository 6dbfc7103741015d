"""`manage.py runserver`: the state server with Django's command line."""

import argparse
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import runserver

from ....runtime.errors import ExpectedError
from ... import auth, serving, state_folder


class Command(runserver.Command):
    """Replaces Django's command of the same name and its development server.

    It never restarts on changes of the code, with or without `--noreload`.
    """

    help = "Start the state server, as `python -m esync.state_server` does; it is not restarted when code changes."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the state server's flags to Django's."""
        super().add_arguments(parser)
        parser.add_argument("--insecure", action="store_true", help="listen on other addresses without ESYNC_TOKEN")

    def inner_run(self, *args: Any, **options: Any) -> None:
        """Serve until a signal comes."""
        if int(self.port) > 65535:  # the system would use it modulo 65536
            raise CommandError(f"{self.port} is not a port number between 0 and 65535")
        try:
            auth.check_token(self.addr, options["insecure"])
            serving.serve(self.addr, int(self.port), state_folder.from_environment())
        except ExpectedError as error:
            raise CommandError(str(error)) from None

    run = inner_run  # Granian needs the main thread, in which Django's reloader would run
