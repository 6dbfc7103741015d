"""Query the JSON API of a state server for a user, without repeating failed queries."""

import contextlib
from typing import Any
from urllib.parse import quote

from .. import config
from ..coordination.http_client import TOKEN_VARIABLE, HTTPClient, NoAnswerError
from ..runtime.closing import Closing
from ..runtime.environment import parse_state_server_address
from ..runtime.errors import ExpectedError


class UnreachableError(ExpectedError):
    """Raised when no state server answers at that address."""


class Client(Closing):
    """A connection to a state server.

    Args:
        address: the server's address, host:port.

    Raises:
        EnvironmentProblemError: the address is malformed.
    """

    def __init__(self, address: str) -> None:
        self.host, self.port = parse_state_server_address(address)
        self.address = address
        self._http = HTTPClient(self.host, self.port, config.STATE_SERVER_TIMEOUT)

    def summaries(self) -> list[dict[str, Any]]:
        """Return all jobs, the newest first."""
        jobs: list[dict[str, Any]] = self._get("jobs")["jobs"]
        return jobs

    def cluster(self) -> dict[str, Any]:
        """Return the processes for which the cluster waits (`missing`, "" for none), and a remedy (`advice`)."""
        return self._get("cluster")

    def jobs(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the job of that name with its workers.

        Without a name, return all jobs that are running or, if none is, the newest.

        Raises:
            ExpectedError: the job does not exist.
        """
        if name is not None:
            return [self._get(f"jobs/{quote(name, safe='')}")]
        summaries = self.summaries()
        running = [summary["name"] for summary in summaries if summary["state"] != "ended"]
        newest = [summary["name"] for summary in summaries[:1]]
        return [self._get(f"jobs/{name}") for name in running or newest]

    def _get(self, path: str) -> dict[str, Any]:
        try:
            answer = self._http.get(f"/api/v1/{path}")
        except NoAnswerError as error:
            raise UnreachableError(f"no state server answers at {self.address}: {error}") from None
        if answer.status == 401:
            problem = "is not the one that" if self._http.has_token else "is not set, but"
            raise ExpectedError(f"{TOKEN_VARIABLE} {problem} the state server at {self.address} wants")
        if (refusal := answer.refusal()) is not None:
            raise ExpectedError(f"the state server at {self.address} refuses: {refusal}")
        if answer.ok:
            with contextlib.suppress(ValueError):
                content = answer.content()
                if isinstance(content, dict):
                    return content
        raise ExpectedError(
            f"what answers at {self.address} is not a state server of this version: status {answer.status} for {path}"
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
