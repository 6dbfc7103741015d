"""The HTTP client of a state server's JSON API.

If ESYNC_TOKEN is set, calls carry that token. If ESYNC_STATE_SERVER_CA is set, calls use TLS, and the
server's certificate is verified with that file ("system": with this machine's authorities).
"""

import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

from .. import config
from ..runtime.errors import ExpectedError
from ..runtime.output import printable

AUTHORITY_VARIABLE, TOKEN_VARIABLE = "ESYNC_STATE_SERVER_CA", "ESYNC_TOKEN"


class NoAnswerError(Exception):
    """There was no answer; the text is the reason."""


@dataclass(frozen=True)
class APIResponse:
    """The response of a server.

    Attributes:
        status: of HTTP.
        body: bytes; JSON from a state server.
        worth_repeating: whether the same call may succeed later: the server has failed, or has sent
            Retry-After.
    """

    status: int
    body: bytes
    worth_repeating: bool

    @property
    def ok(self) -> bool:
        """Whether the call has succeeded."""
        return self.status == 200

    def content(self) -> Any:
        """Return the body, decoded as JSON; ValueError if it is not JSON."""
        return json.loads(self.body)

    def refusal(self) -> str | None:
        """Return the message with which a state server has refused the call; None if it has not."""
        try:
            return None if self.ok else printable(str(self.content()["error"]))
        except (ValueError, KeyError, TypeError):
            return None

    def reason(self) -> str:
        """Return why the call has failed."""
        return self.refusal() or f"HTTP status {self.status}"


class HTTPClient:
    """One persistent connection to a state server.

    Use it in one thread at a time; `close` may be called in another one.

    Args:
        host: name or address of the state server.
        port: its port.
        timeout: seconds of one attempt.

    Attributes:
        url: of the server.
        has_token: whether calls carry a token.
        closed: whether `close` has been called.
        duration: seconds that the newest answered attempt duration; 0 before the first.

    Raises:
        ExpectedError: ESYNC_STATE_SERVER_CA or ESYNC_TOKEN cannot be used.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        authority = os.environ.get(AUTHORITY_VARIABLE, "")
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not re.fullmatch("[!-~]*", token):
            raise ExpectedError(f"{TOKEN_VARIABLE} should have printable ASCII characters without blanks only")
        self.url = f"{'https' if authority else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        self.has_token = bool(token)
        self.closed = Event()
        self.duration = 0.0
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = _connection(host, port, timeout, authority)

    def get(self, path: str) -> APIResponse:
        """Return the answer to GET `path`.

        Raises:
            NoAnswerError: there is none.
        """
        return self._request("GET", path)

    def post(self, path: str, fields: Mapping[str, Any], wait: Callable[[str, float], None]) -> APIResponse:
        """Return the answer to POST `path` with `fields` as JSON.

        It is posted again, with growing pauses, until it has succeeded or is refused for good.
        Every call of the API may be repeated without harm: the server counts the first arrival.

        Args:
            path: the call.
            fields: its content.
            wait: called with the reason why an attempt has failed and the seconds of the pause; it
                waits for that long, or raises what the caller gives up with.
        """
        body = json.dumps(fields).encode()
        pause = config.STATE_SERVER_RETRY_PAUSE
        while True:
            try:
                answer = self._request("POST", path, body)
            except NoAnswerError as error:
                reason = str(error)
            else:
                if answer.ok or not answer.worth_repeating:
                    return answer
                reason = answer.reason()
            wait(reason, pause)
            pause = min(2 * pause, config.STATE_SERVER_RETRY_PAUSE_MAX)

    def close(self) -> None:
        """Close the connection; a call that is being made elsewhere fails soon."""
        self.closed.set()
        if (open_socket := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._connection.close()

    def _request(self, method: str, path: str, body: bytes | None = None) -> APIResponse:
        """Make one attempt.

        If the connection, kept open since the last call, turns out to have been closed, make a
        second one at once.
        """
        if self.closed.is_set():
            raise NoAnswerError("the connection has been closed")
        was_open = self._connection.sock is not None
        try:
            try:
                return self._attempt(method, path, body)
            except ConnectionError:
                if not was_open or self.closed.is_set():
                    raise
                return self._attempt(method, path, body)
        except TimeoutError:
            raise NoAnswerError("no answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None

    def _attempt(self, method: str, path: str, body: bytes | None) -> APIResponse:
        begun = time.monotonic()
        content = {} if body is None else {"Content-Type": "application/json"}
        try:
            self._connection.request(method, path, body, {**content, **self._headers})
            response = self._connection.getresponse()
            repeat = response.status >= 500 or response.getheader("Retry-After") is not None
            answer = APIResponse(response.status, response.read(), repeat)
        except BaseException:
            self._connection.close()  # the rest of this answer must not be taken for the next one
            raise
        self.duration = time.monotonic() - begun
        return answer


class BufferedConnection(http.client.HTTPConnection):
    """Sends a request in one piece.

    Python's own sends head and body separately, which wakes the server twice.
    """

    _pieces: list[bytes] | None = None

    def request(self, *arguments: Any, **keywords: Any) -> None:
        """Send a request."""
        self._pieces = []
        super().request(*arguments, **keywords)
        pieces, self._pieces = self._pieces, None
        super().send(b"".join(pieces))

    def send(self, data: Any) -> None:
        """Keep a piece of a request."""
        if self._pieces is None:
            super().send(data)
        else:
            self._pieces.append(data)


class BufferedTLSConnection(BufferedConnection, http.client.HTTPSConnection):
    """`BufferedConnection` over TLS."""


def _connection(host: str, port: int, timeout: float, authority: str) -> BufferedConnection:
    """Return a connection that is not open yet, over TLS if an authority is given."""
    if not authority:
        return BufferedConnection(host, port, timeout=timeout)
    try:
        context = ssl.create_default_context(cafile=None if authority == "system" else authority)
    except OSError as error:
        raise ExpectedError(
            f"{AUTHORITY_VARIABLE} is {authority!r}, but should be a file of certificates (PEM) or 'system': {error}"
        ) from None
    return BufferedTLSConnection(host, port, timeout=timeout, context=context)
