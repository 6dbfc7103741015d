"""Access control: known host names, no foreign web pages, and a token where there is one.

Without a token, a server starts only where it cannot be reached from other machines, or with
--insecure.
"""

import base64
import binascii
import hmac
import os
import re
import socket
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from ipaddress import ip_address

from ..runtime.errors import ExpectedError
from . import responses
from .responses import Response

_READING = ("GET", "HEAD", "OPTIONS")
_CHALLENGE = 'Basic realm="ESync state server: any name, the token as password"'


class AccessControl:
    """Decides about each request before its body is read.

    A web page can point a name of its own at 127.0.0.1 and have a browser talk to servers there
    (DNS rebinding). It cannot do so with an address. Therefore addresses are always accepted, while
    names must be known. A page can also have a browser send forms to any address. Browsers say
    where such a request comes from, and those from elsewhere are refused.

    Args:
        token: token that callers have to send as `Authorization: Bearer TOKEN`; "" lets everybody
            in. A browser may send it as the password of `Authorization: Basic` instead, but only to
            read, because browsers add that header to every request by themselves.
        names: host names that this server answers to.
    """

    def __init__(self, token: str = "", names: Collection[str] = ()) -> None:
        self._bearer = f"Bearer {token}".encode() if token else b""
        self._token = token.encode()
        self._names = {name.lower() for name in names}
        self._is_known: Callable[[bytes], bool] = lru_cache(maxsize=256)(self._check_host)

    def refuse(self, method: str, headers: Mapping[bytes, bytes], public: bool = False) -> Response | None:
        """Return the response that refuses a request, or None if the request is let in.

        Args:
            method: the HTTP method.
            headers: the headers, by lower-case names.
            public: whether the resource needs no token.
        """
        host = headers.get(b"host", b"")
        if not self._is_known(host):
            return responses.error(
                400,
                f"this server does not answer to the name {_text(host)!r}: start it with ESYNC_ALLOWED_HOSTS set to "
                "that name, or use its address",
            )
        if self._bearer and not public and not self._knows_token(method, headers.get(b"authorization", b"")):
            return responses.error(
                401,
                "this state server wants its token: set ESYNC_TOKEN to what it was started with",
                (
                    "WWW-Authenticate",
                    'Basic realm="ESync, any name, the token as password"' if method == "GET" else "Bearer",
                ),
            )
        if method not in _READING and b"origin" in headers and not _same_origin(headers[b"origin"], host):
            return responses.error(403, "requests from other web pages are refused")
        return None

    @property
    def knows_callers(self) -> bool:
        """Whether there is a token, so that everybody who is let in belongs here."""
        return bool(self._bearer)

    def _knows_token(self, method: str, authorization: bytes) -> bool:
        if hmac.compare_digest(authorization, self._bearer):
            return True
        kind, _, coded = authorization.partition(b" ")
        if kind.lower() != b"basic" or method not in _READING:
            return False
        try:
            password = base64.b64decode(coded, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
        return hmac.compare_digest(password, self._token)

    def _check_host(self, host: bytes) -> bool:
        if not host:
            return True  # HTTP/1.0; no browser does that
        name = _name(host)
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return name.rstrip(".") in self._names
        return True


def _name(host: bytes) -> str:
    """Return the name in a Host header, without its port."""
    text = host.decode("latin-1").lower()
    if text.endswith("]"):
        return text
    name, colon, port = text.rpartition(":")
    return name if colon and (port.isdecimal() or not port) else text


def _same_origin(origin: bytes, host: bytes) -> bool:
    return origin.partition(b"://")[2].lower() == host.lower()


def _text(host: bytes) -> str:
    return host.decode("latin-1")[:80]


VARIABLE = "ESYNC_TOKEN"
_TOKEN = re.compile(r"[!-~]{8,200}")


class TokenRequiredError(ExpectedError):
    """Raised when a server without a token would accept calls from other machines."""


def token(host: str, insecure: bool) -> str:
    """Return the token that callers have to send, or "" where none is needed.

    Args:
        host: address to listen on.
        insecure: whether a token is not needed at any address.

    Raises:
        TokenRequiredError: a token is needed, but ESYNC_TOKEN is not set or has a wrong form.
    """
    given = os.environ.get(VARIABLE, "")
    if given and not _TOKEN.fullmatch(given):
        raise TokenRequiredError(f"{VARIABLE} should be 8 to 200 printable ASCII characters without blanks")
    if not given and not insecure and not is_loopback(host):
        raise TokenRequiredError(
            f"listening on {host} lets other machines in: set {VARIABLE} to a secret that the workers get as well, for "
            f"instance export {VARIABLE}=\"$(python -c 'import secrets; print(secrets.token_urlsafe(24))')\", or let "
            "everybody in with --insecure"
        )
    return given


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on that address or name is reached from here only."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return True  # unknown: listening there will fail, and say so
    return all(ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)
