"""`manage.py runserver`: the state server with Django's command line."""

import argparse
import os
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import runserver

from ....runtime.errors import ExpectedError
from ....runtime.files import expanded
from ... import auth, state_folder, web


class Command(runserver.Command):
    """Takes the place of Django's command of the same name and its development server.

    Like Django's, it restarts when a file of the code has changed, unless `--noreload` is given.
    """

    help = "Starts the state server."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the state server's flags to Django's."""
        super().add_arguments(parser)
        parser.add_argument("--insecure", action="store_true", help="listen on other addresses without ESYNC_TOKEN")

    def inner_run(self, *args: Any, **options: Any) -> None:
        """Serve until a signal comes."""
        given = os.environ.get(state_folder.VARIABLE)
        try:
            token = auth.token(self.addr, options["insecure"])
            web.serve(self.addr, int(self.port), token, expanded(given) if given else None)
        except ExpectedError as error:
            raise CommandError(str(error)) from None
