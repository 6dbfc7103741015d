"""The app's name for Django."""

from django.apps import AppConfig


class ServerConfig(AppConfig):
    """The one app of the state server."""

    name = "SimpleStateServer.server"
    label = "server"
