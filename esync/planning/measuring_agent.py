"""Agent on a remote host that also measures the network between this host and others.

`esync plan` starts it in the place of `launch.remote_agent`, whose requests it answers, too.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from .. import config
from ..launch import remote_agent
from ..runtime.errors import ExpectedError
from .link_probe import LinkServer, probe_link, share_link


class MeasuringAgent(remote_agent.Agent):
    """Answers requests, and has a `LinkServer` until it is closed."""

    def do_open_link(self, address: str) -> dict[str, Any]:
        """Answer probes of other hosts at an address of this one; return the port."""
        try:
            server = LinkServer(address)
        except OSError as error:
            raise ExpectedError(f"nothing can listen at {address}: {error.strerror or error}") from None
        self._held.callback(server.close)
        return {"port": server.port}

    def do_probe_link(self, address: str, port: int) -> dict[str, Any]:
        """Measure the link to a host that answers probes."""
        with _named(address, port):
            return asdict(probe_link(address, port))

    def do_share_link(self, address: str, port: int, up: bool) -> dict[str, Any]:
        """Measure what this host gets of a link that others use at the same time."""
        with _named(address, port):
            return {"rate": share_link(address, port, up)}


@contextmanager
def _named(address: str, port: int) -> Iterator[None]:
    """Name the address in the error where it cannot be reached."""
    try:
        yield
    except OSError as error:
        raise ExpectedError(f"{address} cannot be reached at port {port}: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(remote_agent.main(config.LAUNCH_LEASE, MeasuringAgent))
