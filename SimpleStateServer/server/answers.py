"""Answers in JSON, errors included: {"error": "what was expected"}."""

import json
import logging
import math
from typing import Any

from django.http import HttpRequest, HttpResponse

from esync import config
from esync.coordination.coordinator import ConflictError, RefusedError


class AtMost(logging.Filter):
    """Lets `lines` through in every `seconds`: a worker that errs may do so a hundred times a second."""

    def __init__(self, lines: int, seconds: float) -> None:
        super().__init__()
        self._lines, self._seconds = lines, seconds
        self._since, self._seen = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the line is to be written."""
        if record.created - self._since >= self._seconds:
            if self._seen > self._lines:
                record.msg = f"{record.getMessage()} (and {self._seen - self._lines} lines before, not shown)"
                record.args = ()
            self._since, self._seen = record.created, 0
        self._seen += 1
        return self._seen <= self._lines


logger = logging.getLogger("esync.state_server")
logger.addFilter(AtMost(lines=20, seconds=config.ANNOUNCE_AFTER))


def empty() -> HttpResponse:
    """Return the answer of the calls that have nothing to tell."""
    return _answer(b"", 200)


def data(content: dict[str, Any]) -> HttpResponse:
    """Return `content` as JSON."""
    return _answer(json.dumps(content).encode(), 200)


def error(status: int, message: str) -> HttpResponse:
    """Return an error that the caller can read, and log it."""
    logger.warning("answered %d: %s", status, message)
    return _answer(json.dumps({"error": message}).encode(), status)


def refused(reason: RefusedError) -> HttpResponse:
    """Return 400, or 409 where the request did not fit the job's state; with Retry-After where trying again helps."""
    if not isinstance(reason, ConflictError):
        return error(400, str(reason))
    response = error(409, str(reason))
    if reason.retry_after is not None:
        response["Retry-After"] = str(max(1, math.ceil(reason.retry_after)))
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses."""
    return error(400, "the request could not be read")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown path."""
    return error(404, f"no such path: {request.path[:80]!r}; there are /, /init/, /apply/ and /reset/")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an unexpected exception, which Django has logged with its traceback, without telling details."""
    return error(500, "the state server failed on this request; its log tells why")


def _answer(body: bytes, status: int) -> HttpResponse:
    response = HttpResponse(body, status=status, content_type="application/json")
    response["Content-Length"] = str(len(body))  # lets every server keep the connection open
    return response
