"""Answers in JSON, including errors: {"error": "what was expected"}."""

import json
import logging
import math
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from .. import config
from ..coordination.coordinator import ConflictError, RefusedError
from ..runtime.output import RateLimit, printable

#: Headers of every JSON answer: browsers must neither cache it nor show it as a page.
JSON_HEADERS = (
    ("Content-Type", "application/json"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)


class NotFoundError(RefusedError):
    """Raised when there is no such job."""


class UnavailableError(RefusedError):
    """Raised when a call cannot be answered now: the database is away, or the disk is full."""


class TooLargeError(RefusedError):
    """Raised when a body is larger than that of any genuine request."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body, the headers of this answer, and those of all answers of its kind."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    common: tuple[tuple[str, str], ...] = JSON_HEADERS


_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for each answer

#: The answer of the calls that have nothing to tell.
EMPTY = Response()


class AtMost(logging.Filter):
    """A log filter that lets `lines` lines through in every `seconds`.

    A faulty worker may cause a line a hundred times a second.
    """

    def __init__(self, lines: int, seconds: float) -> None:
        super().__init__()
        self._limit = RateLimit(lines, seconds)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is to be written."""
        left_out = self._limit.admit(record.created)
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} lines before, not shown)"
            record.args = ()
        return left_out is not None


logger = logging.getLogger("esync.state_server.answers")
logger.addFilter(AtMost(lines=20, seconds=config.ANNOUNCE_AFTER))


def data(content: dict[str, Any]) -> Response:
    """Return an answer with this content as JSON."""
    return Response(200, _encode(content).encode())


def model(content: BaseModel) -> Response:
    """Return an answer with this model as JSON."""
    return Response(200, content.model_dump_json().encode())


def error(status: int, message: str, *headers: tuple[str, str]) -> Response:
    """Return an error that the caller can read, and log it."""
    logger.warning("answered %d: %s", status, printable(message))
    return Response(status, json.dumps({"error": message}).encode(), headers)


def refused(reason: RefusedError) -> Response:
    """Return the answer to a refused request.

    Its status is 400, unless the error's class has another one: 409 if the request did not fit the
    job's state, 404, 413 or 503. It has Retry-After where trying again helps.
    """
    if isinstance(reason, NotFoundError):
        return error(404, str(reason))
    if isinstance(reason, TooLargeError):
        return error(413, str(reason), ("Connection", "close"))
    if isinstance(reason, UnavailableError):
        return error(503, str(reason), ("Retry-After", "1"))
    if not isinstance(reason, ConflictError):
        return error(400, str(reason))
    if reason.retry_after is None:
        return error(409, str(reason))
    return error(409, str(reason), ("Retry-After", str(max(1, math.ceil(reason.retry_after)))))


def too_large() -> Response:
    """Return the answer to a body that is too large, with status 413."""
    return refused(TooLargeError(f"the body is larger than {config.STATE_SERVER_MAX_BODY} bytes"))


def wrong_method(path: str, allowed: str) -> Response:
    """Return the answer to a method that a path does not have, with status 405."""
    return error(405, f"{path[:80]} takes {allowed} only", ("Allow", allowed))


def not_found(path: str) -> Response:
    """Return the answer to an unknown path, with status 404."""
    return error(
        404, f"no such path: {path[:80]!r}; there are /, /init/, /apply/, /reset/ and what /api/v1/openapi.json lists"
    )


def failed() -> Response:
    """Return the answer to a request that raised an unexpected exception, with status 500.

    The exception has been logged with its traceback; the answer tells no details.
    """
    return error(500, "the state server failed on this request; its log tells why")
