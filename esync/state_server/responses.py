"""Answers in JSON, including errors: {"error": "what was expected"}."""

import json
import logging
import math
from typing import Any

from django.http import HttpResponse
from pydantic_core import to_json

from .. import config
from ..coordination.coordinator import ConflictError, RefusedError
from ..runtime.output import RateLimit, printable

JSON = "application/json"


class NotFoundError(RefusedError):
    """Raised when there is no such job."""


class UnavailableError(RefusedError):
    """Raised when a call cannot be answered now: the database is away, or the disk is full."""

    retry_after = 1.0


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


def words(problems: list[Any]) -> str:
    """Return what Pydantic finds wrong with a request, each with its place."""
    return "; ".join(_problem(problem) for problem in problems[:3])


def _problem(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])[:80]
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])


def response(body: bytes = b"", status: int = 200, **headers: str) -> HttpResponse:
    """Return an answer whose body is JSON: browsers must neither cache it nor show it as a page."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    common = {"Content-Type": JSON, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return HttpResponse(body, status=status, headers={**common, "Content-Length": str(len(body)), **named})


def data(content: dict[str, Any]) -> HttpResponse:
    """Return an answer with this content as JSON."""
    return response(to_json(content))


def error(status: int, message: str, **headers: str) -> HttpResponse:
    """Return an error that the caller can read, and log it."""
    logger.warning("answered %d: %s", status, printable(message))
    return response(json.dumps({"error": message}).encode(), status, **headers)


def refused(reason: RefusedError) -> HttpResponse:
    """Return the answer to a refused request.

    Its status is 400, unless the error's class has another one: 409 if the request did not fit the
    job's state, 404 or 503. It has Retry-After where trying again helps.
    """
    status = {NotFoundError: 404, UnavailableError: 503, ConflictError: 409}.get(type(reason), 400)
    if (seconds := getattr(reason, "retry_after", None)) is None:
        return error(status, str(reason))
    return error(status, str(reason), Retry_After=str(max(1, math.ceil(seconds))))
