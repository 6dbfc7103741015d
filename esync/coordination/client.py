"""Asks a state server over HTTP, in the form of the published calls: what a worker uses.

Every call may be repeated without harm (the server counts the first arrival), so a call that fails is tried again, with
growing pauses, until the client's patience is over. One connection is kept open for all of them. Where ESYNC_TOKEN is
set, they carry that token.
"""

import http.client
import json
import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from .. import config
from ..errors import ExpectedError
from ..handles import Completed, Handle

logger = logging.getLogger(__name__)

_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}


class StateServerError(ExpectedError):
    """The state server did not answer in time, or refused the call; the text names its address and the reason."""


class StateServerClient:
    """One worker's `Coordination` over HTTP. For one thread at a time.

    Args:
        host: name or address of the state server.
        port: its port.
        rank: of this worker.
        timeout: seconds after which one attempt is given up.
        patience: seconds of failed attempts after which a call is given up.
    """

    def __init__(
        self,
        host: str,
        port: int | str = config.STATE_SERVER_PORT,
        rank: int = 0,
        timeout: float = config.STATE_SERVER_TIMEOUT,
        patience: float = config.STATE_SERVER_PATIENCE,
    ) -> None:
        self.rank = rank
        self.round = 1
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._patience = patience
        self._connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
        token = os.environ.get("ESYNC_TOKEN", "")
        self._headers = {**_HEADERS, "Authorization": f"Bearer {token}"} if token else _HEADERS
        self._run = uuid.uuid4().hex  # tells a repeated /init/ from one of another training

    def init(self, num_workers: int, epsilon: float, slowest_iterations: int = config.SLOWEST_ITERATIONS) -> None:
        """Begin a training (see `Coordination.init`). While another one is going on there, this waits for its end.

        Raises:
            StateServerError: no answer, or a refusal, for longer than the patience lasts.
        """
        self._call(
            "init",
            {
                "num_workers": num_workers,
                "epsilon": epsilon,
                "slowest_iterations": slowest_iterations,
                "run": self._run,
            },
        )

    def ask(self, iteration: int, capability: float) -> Handle[bool]:
        """Ask whether to exchange (see `Coordination.ask`). This one waits for the answer: the handle is done.

        Raises:
            StateServerError: no answer for longer than the patience lasts, or a refusal.
        """
        fields = {"r": self.rank, "k": iteration, "c": capability, "te": time.time(), "t": self.round}
        body = self._call("apply", fields)
        try:
            ready = json.loads(body)["ready"]
        except (ValueError, KeyError, TypeError):
            raise StateServerError(f"{self.address} is no state server: it answered {body[:80]!r}") from None
        return Completed(bool(ready))

    def reset(self, round: int) -> None:
        """Report that this worker begins `round` (see `Coordination.reset`); later questions belong to it.

        Raises:
            StateServerError: no answer for longer than the patience lasts, or a refusal.
        """
        self._call("reset", {"r": self.rank, "t": round, "te": time.time()})
        self.round = round

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> "StateServerClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one call, until it is answered or given up ------------------------------------------------------------

    def _call(self, name: str, fields: Mapping[str, Any]) -> bytes:
        """Return the body of the answer to POST /name/."""
        body = urlencode(fields).encode()
        start = time.monotonic()
        announce_at = start + config.ANNOUNCE_AFTER
        pause = config.STATE_SERVER_RETRY_PAUSE
        while True:
            try:
                answer = self._post(f"/{name}/", body)
            except (OSError, http.client.HTTPException) as error:
                reason = _describe(error)
            else:
                if answer.status == 200:
                    return answer.body
                reason = answer.reason()
                if not answer.worth_repeating():
                    raise StateServerError(f"the state server at {self.address} refused /{name}/: {reason}")
            now = time.monotonic()
            if now - start + pause > self._patience:
                raise StateServerError(
                    f"gave up on the state server at {self.address} after {now - start:.0f} s of /{name}/: {reason}"
                )
            if now >= announce_at:
                announce_at = now + config.ANNOUNCE_AFTER
                logger.warning(
                    "rank %d has been waiting %.0f s for the state server at %s to answer /%s/: %s",
                    self.rank, now - start, self.address, name, reason,
                )  # fmt: skip
            time.sleep(pause)
            pause = min(2 * pause, config.STATE_SERVER_RETRY_PAUSE_MAX)

    def _post(self, path: str, body: bytes) -> "_Answer":
        """Make one attempt; a second one at once if the kept-open connection turns out to have been closed."""
        was_open = self._connection.sock is not None
        try:
            return self._attempt(path, body)
        except ConnectionError:
            if not was_open:
                raise
            return self._attempt(path, body)

    def _attempt(self, path: str, body: bytes) -> "_Answer":
        try:
            self._connection.request("POST", path, body, self._headers)
            response = self._connection.getresponse()
            return _Answer(response.status, response.getheader("Retry-After"), response.read())
        except BaseException:
            self._connection.close()  # half a conversation must not be taken for the next one
            raise


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
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            return f"HTTP status {self.status}"


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
