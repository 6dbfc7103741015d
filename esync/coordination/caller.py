"""One call to the state server over HTTP, made until it is answered or given up.

Every call may be repeated without harm (the server counts the first arrival), so a call that fails is tried again, with
growing pauses, until the caller's patience is over. One connection is kept open for all of them. Where ESYNC_TOKEN is
set, they carry that token; where ESYNC_STATE_SERVER_CA is set, they go over TLS to a server whose certificate that
file confirms ("system": one of the authorities that this machine trusts).
"""

import contextlib
import http.client
import json
import logging
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

from .. import config
from ..errors import ExpectedError
from ..printable import printable

logger = logging.getLogger(__name__)

AUTHORITY_VARIABLE = "ESYNC_STATE_SERVER_CA"


class StateServerError(ExpectedError):
    """The state server did not answer in time, or refused the call; the text names its address and the reason."""


class Caller:
    """Makes the calls of one worker. For one thread at a time; `close` may come from another one.

    Args:
        host: name or address of the state server.
        port: its port.
        who: makes the calls; named in what is logged.
        timeout: seconds after which one attempt is given up.
        patience: seconds of failed attempts after which a call is given up.

    Attributes:
        address: of the server.
        took: seconds that the newest answered attempt took; 0 before the first.
    """

    def __init__(self, host: str, port: int | str, who: str, timeout: float, patience: float) -> None:
        authority = os.environ.get(AUTHORITY_VARIABLE, "")
        scheme = "https" if authority else "http"
        self.address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self.took = 0.0
        self._who, self._patience = who, patience
        self._connection = connect(host, int(port), timeout)
        token = os.environ.get("ESYNC_TOKEN", "")
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = {"Content-Type": "application/json", **authorization}
        self._closed = Event()

    def call(self, path: str, fields: Mapping[str, Any]) -> Any:
        """Return the answer to POST `path` with `fields` as JSON.

        Raises:
            StateServerError: no answer for longer than the patience lasts, or a refusal.
        """
        body = json.dumps(fields).encode()
        start = time.monotonic()
        announce_at = start + config.ANNOUNCE_AFTER
        pause = config.STATE_SERVER_RETRY_PAUSE
        while not self._closed.is_set():
            try:
                answer = self._post(path, body)
            except (OSError, http.client.HTTPException) as error:
                reason = _describe(error)
            else:
                if answer.status == 200:
                    return self._content(answer)
                reason = answer.reason()
                if not answer.worth_repeating():
                    raise StateServerError(f"the state server at {self.address} refused {path}: {reason}")
            now = time.monotonic()
            if now - start + pause > self._patience:
                raise StateServerError(
                    f"gave up on the state server at {self.address} after {now - start:.0f} s of {path}: {reason}"
                )
            if now >= announce_at:
                announce_at = now + config.ANNOUNCE_AFTER
                logger.warning(
                    "%s has been waiting %.0f s for the state server at %s to answer %s: %s",
                    self._who, now - start, self.address, path, reason,
                )  # fmt: skip
            self._closed.wait(pause)
            pause = min(2 * pause, config.STATE_SERVER_RETRY_PAUSE_MAX)
        raise StateServerError(f"the connection to the state server at {self.address} has been closed")

    def close(self) -> None:
        """Close the connection; a call that is being made elsewhere fails soon."""
        self._closed.set()
        if (open_socket := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._connection.close()

    def _content(self, answer: "_Answer") -> Any:
        try:
            return json.loads(answer.body)
        except ValueError:
            raise self.unexpected(answer.body) from None

    def unexpected(self, answer: object) -> StateServerError:
        """Return the error for an answer that no state server gives."""
        return StateServerError(f"{self.address} is no state server: it answered {str(answer)[:80]}")

    def _post(self, path: str, body: bytes) -> "_Answer":
        """Make one attempt; a second one at once if the kept-open connection turns out to have been closed."""
        was_open = self._connection.sock is not None
        try:
            return self._attempt(path, body)
        except ConnectionError:
            if not was_open or self._closed.is_set():
                raise
            return self._attempt(path, body)

    def _attempt(self, path: str, body: bytes) -> "_Answer":
        begun = time.monotonic()
        try:
            self._connection.request("POST", path, body, self._headers)
            response = self._connection.getresponse()
            answer = _Answer(response.status, response.getheader("Retry-After"), response.read())
        except BaseException:
            self._connection.close()  # half a conversation must not be taken for the next one
            raise
        self.took = time.monotonic() - begun
        return answer


class Connection(http.client.HTTPConnection):
    """Sends a request in one piece, where Python's own sends head and body apart and wakes the server up twice."""

    _pieces: list[bytes] | None = None

    def request(self, *arguments: Any, **named: Any) -> None:
        """Send a request."""
        self._pieces = []
        super().request(*arguments, **named)
        pieces, self._pieces = self._pieces, None
        super().send(b"".join(pieces))

    def send(self, data: Any) -> None:
        """Keep a piece of a request."""
        if self._pieces is None:
            super().send(data)
        else:
            self._pieces.append(data)


class SecureConnection(Connection, http.client.HTTPSConnection):
    """The same over TLS."""


def connect(host: str, port: int, timeout: float) -> Connection:
    """Return a connection that is not open yet; over TLS where ESYNC_STATE_SERVER_CA says how to trust the server."""
    authority = os.environ.get(AUTHORITY_VARIABLE, "")
    if not authority:
        return Connection(host, port, timeout=timeout)
    try:
        context = ssl.create_default_context(cafile=None if authority == "system" else authority)
    except OSError as error:
        raise ExpectedError(
            f"{AUTHORITY_VARIABLE} is {authority!r}, but should be a file of certificates (PEM) or 'system': {error}"
        ) from None
    return SecureConnection(host, port, timeout=timeout, context=context)


@dataclass(frozen=True)
class _Answer:
    status: int
    retry_after: str | None
    body: bytes

    def worth_repeating(self) -> bool:
        """Tell whether the same call may succeed later: the server failed, or said so by Retry-After."""
        return self.status >= 500 or self.retry_after is not None

    def reason(self) -> str:
        """Return the server's message, or what there is of it."""
        try:
            return printable(str(json.loads(self.body)["error"]))
        except (ValueError, KeyError, TypeError):
            return f"HTTP status {self.status}"


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
