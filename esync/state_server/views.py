"""Pages and files other than the APIs: the dashboard, the metrics, unknown paths."""

from functools import cache
from pathlib import Path
from zlib import crc32

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import condition, require_GET

from . import prometheus, responses
from .service import service

HOME = "/dashboard/"


@cache
def _page() -> bytes:
    return Path(settings.PACKAGE, "dashboard", "index.html").read_bytes()


def opens_page(request: HttpRequest) -> bool:
    """Return whether a browser opens the server's root page, which redirects to the dashboard."""
    return request.path == "/" and "text/html" in request.headers.get("Accept", "")  # programs accept */*


@require_GET
def redirect_to_dashboard(request: HttpRequest) -> HttpResponse:
    """Redirect a browser to the dashboard."""
    return HttpResponse(status=303, headers={"Location": HOME, "Vary": "Accept"})


@require_GET
@condition(etag_func=lambda request: f'"{crc32(_page()):x}"')
def dashboard(request: HttpRequest) -> HttpResponse:
    """Show the dashboard, whose files WhiteNoise serves."""
    return HttpResponse(_page(), headers={"Cache-Control": "no-cache", **settings.PAGE_HEADERS})


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Show the metrics in Prometheus' text format."""
    with service.lock:
        jobs = [(job.info, job.counters()) for job in service.jobs.all()]
    return HttpResponse(prometheus.exposition(jobs), content_type=prometheus.CONTENT_TYPE)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the answer to an unknown path."""
    return responses.error(
        404,
        f"no such path: {request.path[:80]!r}; there are /, /init/, /apply/, /reset/, /dashboard/, /metrics and what "
        "/api/v1/openapi.json lists",
    )
