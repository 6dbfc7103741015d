"""Answers in JSON, including errors: {"error": "what was expected"}."""

import json
import logging
import math
from typing import Any

from django.http import HttpResponse
from pydantic_core import to_json

from ..coordination.coordinator import ConflictError, RefusedError
from ..runtime.output import RateLimitedLog, printable

JSON = "application/json"


class NotFoundError(RefusedError):
    """Raised when a job or a run does not exist."""


class UnavailableError(RefusedError):
    """Raised when a call cannot be answered now, because the database is unreachable or the disk full."""

    retry_after = 1.0


#: Logs refusals: some of them only, since a faulty worker may cause hundreds.
_log = RateLimitedLog(logging.getLogger("esync.state_server").warning, limit=20)


def words(problems: list[Any]) -> str:
    """Return Pydantic's problems with a request, each with its location, as text."""
    return "; ".join(_problem(problem) for problem in problems[:3])


def _problem(problem: Any) -> str:
    location = ".".join(str(part) for part in problem["loc"])[:80]
    return f"{location}: {problem['msg']}" if location else str(problem["msg"])


def response(body: bytes = b"", status: int = 200, **headers: str) -> HttpResponse:
    """Return an answer with a body in JSON, which browsers must neither cache nor show as a page."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    common = {"Content-Type": JSON, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return HttpResponse(body, status=status, headers={**common, "Content-Length": str(len(body)), **fields})


def data(content: dict[str, Any]) -> HttpResponse:
    """Return an answer with this content as JSON."""
    return response(to_json(content))


def error(status: int, message: str, **headers: str) -> HttpResponse:
    """Return an error that the caller can read, and log it."""
    _log(f"answered {status}: {printable(message)}")
    return response(json.dumps({"error": message}).encode(), status, **headers)


def refused(reason: RefusedError) -> HttpResponse:
    """Return the answer to a refused request.

    Its status is that of the error's class: 400, 404, 409 (conflict with the job's state) or 503. It
    has a Retry-After header if a retry may succeed.
    """
    status = {NotFoundError: 404, UnavailableError: 503, ConflictError: 409}.get(type(reason), 400)
    if (seconds := getattr(reason, "retry_after", None)) is None:
        return error(status, str(reason))
    return error(status, str(reason), Retry_After=str(max(1, math.ceil(seconds))))
