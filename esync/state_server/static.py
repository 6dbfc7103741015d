"""Serve the dashboard's files from memory, without a token, since they hold no data.

They query the JSON API for what they show, with the token. Nothing is loaded from elsewhere, and
the Content-Security-Policy forbids it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from .. import web
from .request import Call
from .responses import Response
from .service import Service

HOME = "/dashboard/"
_ASSETS = HOME + "assets/"
_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SECURITY = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


@dataclass(frozen=True)
class Asset:
    """A file of the dashboard."""

    body: bytes
    headers: tuple[tuple[str, str], ...]
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by path; they are read only once."""
    folder = files(__package__) / "dashboard"
    found = {}
    for place in (files(web), folder, folder / "uplot"):
        for file in place.iterdir():
            kind = _KINDS.get(file.name.rpartition(".")[2])
            if kind is None or not file.is_file():
                continue
            path = HOME if file.name == "index.html" else _ASSETS + file.name
            found[path] = _asset(file.read_bytes(), kind)
    return found


def _asset(body: bytes, kind: str) -> Asset:
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    headers = (("Content-Type", kind), ("Cache-Control", "no-cache"), ("ETag", tag), *_SECURITY)
    return Asset(body, headers, tag)


def show(path: str) -> Callable[[Service, Call], Response]:
    """Return a handler that sends that file."""

    def handler(service: Service, call: Call) -> Response:
        asset = assets()[path]
        unchanged = asset.tag in call.header(b"if-none-match")
        return Response(304 if unchanged else 200, b"" if unchanged else asset.body, common=asset.headers)

    return handler


def redirect(service: Service, call: Call) -> Response:
    """Send a browser to the dashboard."""
    return Response(303, headers=(("Location", HOME), ("Vary", "Accept")))


def wants_page(headers_accept: bytes) -> bool:
    """Return whether a request with this header Accept comes from a browser that opens a page.

    Programs send */* or nothing.
    """
    return b"text/html" in headers_accept
