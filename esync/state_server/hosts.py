"""Which names this server answers to.

A web page can point a name of its own at 127.0.0.1 and have a browser talk to servers there (DNS rebinding). It cannot
do so with a bare address, so these are always welcome; names must be known.
"""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host

from . import responses

GetResponse = Callable[[HttpRequest], HttpResponse]


def check_host(get_response: GetResponse) -> GetResponse:
    """Middleware: refuse requests whose Host header names neither an address nor an allowed name."""

    def middleware(request: HttpRequest) -> HttpResponse:
        host = request.META.get("HTTP_HOST", "")
        if _is_allowed(host):
            return get_response(request)
        name = split_domain_port(host)[0]
        return responses.error(
            400,
            f"this server does not answer to the name {name or host[:80]!r}: "
            "start it with ESYNC_ALLOWED_HOSTS set to that name, or use its address",
        )

    return middleware


@lru_cache(maxsize=256)
def _is_allowed(host: str) -> bool:
    if not host:
        return True  # HTTP/1.0; no browser does that
    name = split_domain_port(host)[0]
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return bool(name) and validate_host(name, settings.ALLOWED_HOSTS)
    return True
