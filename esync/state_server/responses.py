"""Answers in JSON, errors included: {"error": "what was expected"}."""

import json
import logging
import math
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from .. import config
from ..coordination.coordinator import ConflictError, RefusedError
from ..runtime.output import RateLimit, printable

#: With every JSON answer: it is data, nobody's page, and as old as it is.
JSON_HEADERS = (
    ("Content-Type", "application/json"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)


class NotFoundError(RefusedError):
    """There is no such job."""


class UnavailableError(RefusedError):
    """Not now: the database is away, or the disk is full."""


class TooLargeError(RefusedError):
    """The body is larger than any honest request."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body, the headers of this answer, and those that all answers of its kind have."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    common: tuple[tuple[str, str], ...] = JSON_HEADERS


_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for each answer

#: The answer of the calls that have nothing to tell.
EMPTY = Response()


class AtMost(logging.Filter):
    """Lets `lines` through in every `seconds`: a worker that errs may do so a hundred times a second."""

    def __init__(self, lines: int, seconds: float) -> None:
        super().__init__()
        self._limit = RateLimit(lines, seconds)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the line is to be written."""
        left_out = self._limit.admit(record.created)
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} lines before, not shown)"
            record.args = ()
        return left_out is not None


logger = logging.getLogger("esync.state_server.answers")
logger.addFilter(AtMost(lines=20, seconds=config.ANNOUNCE_AFTER))


def data(content: dict[str, Any]) -> Response:
    """Return `content` as JSON."""
    return Response(200, _encode(content).encode())


def model(content: BaseModel) -> Response:
    """Return `content` as JSON."""
    return Response(200, content.model_dump_json().encode())


def error(status: int, message: str, *headers: tuple[str, str]) -> Response:
    """Return an error that the caller can read, and log it."""
    logger.warning("answered %d: %s", status, printable(message))
    return Response(status, json.dumps({"error": message}).encode(), headers)


def refused(reason: RefusedError) -> Response:
    """Return 400, or 409 where the request did not fit the job's state; with Retry-After where trying again helps."""
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
    """Return 413."""
    return refused(TooLargeError(f"the body is larger than {config.STATE_SERVER_MAX_BODY} bytes"))


def wrong_method(path: str, allowed: str) -> Response:
    """Return 405."""
    return error(405, f"{path[:80]} takes {allowed} only", ("Allow", allowed))


def not_found(path: str) -> Response:
    """Answer an unknown path."""
    return error(
        404, f"no such path: {path[:80]!r}; there are /, /init/, /apply/, /reset/ and what /api/v1/openapi.json lists"
    )


def failed() -> Response:
    """Answer an unexpected exception, which has been logged with its traceback, without telling details."""
    return error(500, "the state server failed on this request; its log tells why")
