"""The app, as Django knows it."""

from django.apps import AppConfig


class ServerConfig(AppConfig):
    """The only app of the state server."""

    name = "esync.state_server"
    label = "server"
