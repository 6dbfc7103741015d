"""Middleware: access control, and answers to failed requests."""

import base64
import binascii
import hmac
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from .. import config
from ..coordination.coordinator import RefusedError
from . import prometheus, responses, views

logger = logging.getLogger("esync.state_server")

View = Callable[[HttpRequest], HttpResponse]
_READING = ("GET", "HEAD", "OPTIONS")


class RequestMiddleware:
    """Times requests, answers HEAD like GET, and turns exceptions into answers in JSON."""

    def __init__(self, get_response: View) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request."""
        begun = time.perf_counter()
        method = request.method or ""
        if method == "HEAD":
            request.method = "GET"  # the web server leaves the body out
        answer = self._get_response(request)
        if isinstance(answer, HttpResponseNotAllowed):
            allowed = answer["Allow"].replace("GET", "GET, HEAD")
            answer = responses.error(405, f"{request.path[:80]} takes {allowed} only", Allow=allowed)
        route = (request.resolver_match.route or "/") if request.resolver_match else "other"
        prometheus.observe_request(route, method, answer.status_code, time.perf_counter() - begun)
        return answer

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        """Return the answer to a request whose view has raised an exception."""
        if isinstance(exception, RefusedError):
            return responses.refused(exception)
        if isinstance(exception, DatabaseError):
            return responses.refused(responses.UnavailableError("the database of the history cannot be reached"))
        if isinstance(exception, SuspiciousOperation):  # too many parameters, for instance
            return responses.error(400, f"the request cannot be read: {exception}")
        logger.error("unexpected failure of %s %s", request.method, request.path, exc_info=exception)
        return responses.error(500, "the state server failed on this request; its log tells why")


class AccessMiddleware:
    """Checks host names, the token, the origin of requests by browsers, and the size of bodies.

    A web site can resolve its own host name to 127.0.0.1 and let a browser send requests to servers
    there (DNS rebinding), but not with an address as the host. Therefore addresses are always accepted,
    and names must be known. A web page can also let a browser send forms to any address; requests with
    a foreign origin are refused.

    The token is sent as `Authorization: Bearer TOKEN`. For reading, a browser may send it as the
    password of `Authorization: Basic` instead; not for writing, because browsers add that header to
    every request. The dashboard's files need no token.
    """

    def __init__(self, get_response: View) -> None:
        self._get_response = get_response
        self._is_known = lru_cache(maxsize=256)(_is_known)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Refuse a request before its body is read, or pass it on."""
        return self._refuse(request) or self._get_response(request)

    def _refuse(self, request: HttpRequest) -> HttpResponse | None:
        headers, method = request.META, request.method or ""
        host = headers.get("HTTP_HOST", "")
        if not self._is_known(host):
            return responses.error(
                400,
                f"this server does not answer to the name {host[:80]!r}: start it with ESYNC_ALLOWED_HOSTS set to "
                "that name, or use its address",
            )
        if (
            settings.TOKEN
            and not _knows_token(method, headers.get("HTTP_AUTHORIZATION", ""))
            and not request.path.startswith("/dashboard")
            and not views.opens_page(request)
        ):
            return responses.error(
                401,
                "this state server wants its token: set ESYNC_TOKEN to what it was started with",
                WWW_Authenticate='Basic realm="ESync, any name, the token as password"'
                if method == "GET"
                else "Bearer",
            )
        if method not in _READING:
            origin = headers.get("HTTP_ORIGIN")
            if origin is not None and origin.partition("://")[2].lower() != host.lower():
                return responses.error(403, "requests from other web pages are refused")
        if "HTTP_TRANSFER_ENCODING" in headers:
            return responses.error(411, "send the body in one piece, with a Content-Length")
        if len(length := headers.get("CONTENT_LENGTH") or "0") > 9 or int(length) > config.STATE_SERVER_MAX_BODY:
            text = f"the body is larger than {config.STATE_SERVER_MAX_BODY} bytes"
            return responses.error(413, text)
        return None


def _knows_token(method: str, authorization: str) -> bool:
    token = settings.TOKEN.encode()
    kind, _, credentials = authorization.encode("latin-1", "replace").partition(b" ")
    if kind.lower() == b"bearer":
        return hmac.compare_digest(credentials, token)
    if kind.lower() != b"basic" or method not in _READING:
        return False
    try:
        password = base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return False
    return hmac.compare_digest(password, token)


def _is_known(host: str) -> bool:
    """Return whether the name or address in a Host header is accepted."""
    if not host:
        return True  # HTTP/1.0, which no browser uses
    name = host.lower()
    if not name.endswith("]"):
        head, colon, port = name.rpartition(":")
        name = head if colon and (port.isdecimal() or not port) else name
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return name.rstrip(".") in settings.HOST_NAMES
    return True
