"""The published calls: GET /, POST /init/, /apply/ and /reset/.

Fields and answers are those of the public ESync code. The calls concern the job `default`. Further
fields are optional: `slowest_iterations` and `run` in /init/, the round `t` in /apply/, `rejoin`
and `members` in /reset/.
"""

import re
import time
from urllib.parse import parse_qsl

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST

from .. import config
from ..coordination.coordinator import InvalidError
from . import responses, views
from .service import service

FORM = "application/x-www-form-urlencoded"
_WHOLE = re.compile(r"[0-9]{1,9}")
_TEXT = re.compile(r"[ -~]*")
_MEMBERS = re.compile(r"[0-9]{1,5}(,[0-9]{1,5})*")


class FormFields:
    """The fields of a form-encoded POST.

    Each method raises `InvalidError`, which names the field, if the field is malformed, or missing
    and without a default. The coordinator checks whether the values make sense.
    """

    def __init__(self, request: HttpRequest) -> None:
        if request.content_type != FORM:
            raise InvalidError(
                f"send the fields form-encoded (Content-Type: {FORM}), not {(request.content_type or '')[:80]!r}"
            )
        if len(request.body) < int(request.META.get("CONTENT_LENGTH") or 0):
            raise InvalidError("the form is shorter than its Content-Length says")  # its sender has gone
        try:
            pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=50)
        except ValueError as error:
            raise InvalidError(f"the form cannot be read: {error}") from None
        self._values = dict(pairs)
        if len(self._values) < len(pairs):
            raise InvalidError("a field was given twice")

    def whole(self, name: str, default: int | None = None) -> int:
        """Return an integer, 0 or more, of at most nine digits."""
        if name not in self._values and default is not None:
            return default
        text = self._given(name)
        if not _WHOLE.fullmatch(text):
            raise InvalidError(f"{name} must be a whole number, 0 or more, not {text[:40]!r}")
        return int(text)

    def whole_if_given(self, name: str) -> int | None:
        """Return an integer, or None if the field is missing."""
        return self.whole(name) if name in self._values else None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number, which may be NaN or infinite."""
        if name not in self._values and default is not None:
            return default
        text = self._given(name)
        try:
            return float(text)
        except ValueError:
            raise InvalidError(f"{name} must be a number, not {text[:40]!r}") from None

    def text(self, name: str, default: str, most: int = 64) -> str:
        """Return a text of at most `most` printable ASCII characters."""
        text = self._values.get(name, default)
        if len(text) > most or not _TEXT.fullmatch(text):
            raise InvalidError(f"{name} must be at most {most} printable ASCII characters, not {text[:80]!r}")
        return text

    def _given(self, name: str) -> str:
        if name not in self._values:
            raise InvalidError(f"the field {name} is missing")
        return self._values[name]


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Show the records of the job; send a browser that opens a page to the dashboard."""
    if views.opens_page(request):
        return views.redirect_to_dashboard(request)
    before = {"num_workers": 0, "t": 1, "epsilon": config.EPSILON_PUBLISHED, "slowest_iterations": 1, "records": []}
    with service.lock:
        job = service.jobs.find(config.JOB)
        records = before if job is None else job.coordinator.snapshot()
    return responses.data(records)


@require_POST
def init(request: HttpRequest) -> HttpResponse:
    """Begin a new training."""
    fields = FormFields(request)
    with service.lock:
        service.jobs.begin(
            config.JOB,
            num_workers=fields.whole("num_workers"),
            epsilon=fields.number("epsilon", config.EPSILON_PUBLISHED),
            slowest_iterations=fields.whole("slowest_iterations", config.SLOWEST_ITERATIONS),
            run=fields.text("run", ""),
        )
    return responses.response()


@require_POST
def apply(request: HttpRequest) -> HttpResponse:
    """Answer whether the worker shall exchange (1) or train on (0)."""
    arrived = time.monotonic()
    fields = FormFields(request)
    with service.lock:
        job = service.jobs.get(config.JOB)
        ready = job.apply(
            rank=fields.whole("r"),
            iteration=fields.whole("k"),
            capability=fields.number("c"),
            now=job.clock.at(arrived),
            te=fields.number("te"),
            round=fields.whole_if_given("t"),
        )
    return responses.data({"ready": int(ready)})


@require_POST
def reset(request: HttpRequest) -> HttpResponse:
    """Take the report that a worker has begun a round."""
    arrived = time.monotonic()
    fields = FormFields(request)
    with service.lock:
        job = service.jobs.get(config.JOB)
        job.reset(
            rank=fields.whole("r"),
            round=fields.whole("t"),
            now=job.clock.at(arrived),
            te=fields.number("te"),
            rejoin=bool(fields.whole("rejoin", 0)),
            members=_members(fields.text("members", "", config.STATE_SERVER_MAX_BODY)),
        )
    return responses.response()


def _members(text: str) -> list[int] | None:
    if not text:
        return None
    if not _MEMBERS.fullmatch(text):
        raise InvalidError(f"members must be ranks separated by commas, as in 0,1,3, not {text[:40]!r}")
    return [int(rank) for rank in text.split(",")]
