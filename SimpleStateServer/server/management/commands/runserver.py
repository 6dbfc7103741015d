"""`manage.py runserver`: Django's own, with answers that leave at once.

Django's development server writes an answer in two pieces. On a connection that is kept open, Nagle's algorithm holds
the second one back until the worker's machine has acknowledged the first, which takes it 40 ms.
"""

import socket
from typing import Any

from django.core.management.commands import runserver
from django.core.servers.basehttp import WSGIServer


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
