"""Asks a state server's JSON API what it knows of its jobs. People read the answers, so nothing is repeated."""

import http.client
import json
import os
from types import TracebackType
from typing import Any
from urllib.parse import quote

from .. import config
from ..coordination.caller import connect
from ..environment import EnvironmentProblemError
from ..errors import ExpectedError
from ..printable import printable


class Unreachable(ExpectedError):  # noqa: N818 - read as a sentence: nobody answers there
    """Nobody answers at that address."""


class Client:
    """One connection to a state server.

    Args:
        address: host:port.

    Raises:
        EnvironmentProblemError: that is no address.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        host = host.removeprefix("http://").strip("[]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise EnvironmentProblemError(f"the state server's address is {address!r}, but should be host:port")
        self.host, self.port, self.address = host, int(port), address
        self._connection = connect(host, self.port, config.STATE_SERVER_TIMEOUT)

    def summaries(self) -> list[dict[str, Any]]:
        """All jobs, the newest first."""
        found: list[dict[str, Any]] = self._ask("jobs")["jobs"]
        return found

    def jobs(self, name: str | None = None) -> list[dict[str, Any]]:
        """The job of that name with its workers; without a name those that are running, or else the newest one.

        Raises:
            ExpectedError: there is no job of that name.
        """
        if name is not None:
            return [self._ask(f"jobs/{quote(name, safe='')}")]
        summaries = self.summaries()
        going_on = [one["name"] for one in summaries if one["state"] != "ended"] or [s["name"] for s in summaries[:1]]
        return [self._ask(f"jobs/{one}") for one in going_on]

    def _ask(self, path: str) -> dict[str, Any]:
        token = os.environ.get("ESYNC_TOKEN", "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._connection.request("GET", f"/api/v1/{path}", headers=headers)
            response = self._connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", "") or error
            raise Unreachable(f"no state server answers at {self.address}: {reason}") from None
        if status == 401:
            is_wrong = "is not the one that" if token else "is not set, but"
            raise ExpectedError(f"ESYNC_TOKEN {is_wrong} the state server at {self.address} wants")
        try:
            content: dict[str, Any] = json.loads(body)
            if status != 200:
                raise ExpectedError(f"the state server at {self.address} refuses: {printable(str(content['error']))}")
        except (ValueError, KeyError, TypeError):
            raise ExpectedError(
                f"what answers at {self.address} is no state server of this version: status {status} for {path}"
            ) from None
        return content

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
