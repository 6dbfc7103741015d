"""The app's name for Django."""

from django.apps import AppConfig


class ServerConfig(AppConfig):
    """The one app of the state server."""

    name = "esync.state_server"
    label = "server"
