"""The published calls: GET /, POST /init/, /apply/ and /reset/.

Fields and answers are those of the public ESync code. The calls concern the job `default`.
"""

import time
from typing import TypeVar
from urllib.parse import parse_qsl

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST
from pydantic import BaseModel, ValidationError

from .. import config
from ..coordination.coordinator import InvalidError
from . import responses, schema, views
from .service import service

FORM = "application/x-www-form-urlencoded"


class Form(BaseModel):
    """The fields of a call; others are ignored."""


class Init(Form):
    """Begins a training."""

    num_workers: schema.Workers
    epsilon: schema.Seconds = config.EPSILON_PUBLISHED


class Apply(Form):
    """Asks whether a worker is to exchange."""

    r: schema.Count
    k: schema.Count
    c: schema.Seconds
    te: schema.Seconds


class Reset(Form):
    """Reports that a worker has begun a round."""

    r: schema.Count
    t: schema.Count
    te: schema.Seconds


Fields = TypeVar("Fields", bound=Form)


def _read(form: type[Fields], request: HttpRequest) -> Fields:
    """Return the fields of a form-encoded POST.

    Raises:
        InvalidError: the form cannot be read, or a field is missing or malformed.
    """
    if request.content_type != FORM:
        raise InvalidError(
            f"send the fields form-encoded (Content-Type: {FORM}), not {(request.content_type or '')[:80]!r}"
        )
    if len(request.body) < int(request.META.get("CONTENT_LENGTH") or 0):
        raise InvalidError("the form is shorter than its Content-Length says")  # the sender has disconnected
    try:
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=50)
        values = dict(pairs)
        if len(values) < len(pairs):
            raise InvalidError("a field was given twice")
        return form.model_validate(values)
    except ValidationError as error:
        raise InvalidError(responses.words(error.errors())) from None
    except ValueError as error:
        raise InvalidError(f"the form cannot be read: {error}") from None


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Show the records of the job; redirect a browser to the dashboard."""
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
    fields = _read(Init, request)
    with service.lock:
        service.jobs.begin(config.JOB, fields.num_workers, fields.epsilon, config.SLOWEST_ITERATIONS)
    return responses.response()


@require_POST
def apply(request: HttpRequest) -> HttpResponse:
    """Answer whether the worker is to exchange (1) or to continue training (0)."""
    arrived = time.monotonic()
    fields = _read(Apply, request)
    with service.lock:
        job = service.jobs.get(config.JOB)
        decision = job.query(fields.r, None, fields.k, fields.c, job.clock.at(arrived), te=fields.te)
    return responses.data({"ready": int(decision.ready)})


@require_POST
def reset(request: HttpRequest) -> HttpResponse:
    """Record that a worker has begun a round."""
    arrived = time.monotonic()
    fields = _read(Reset, request)
    with service.lock:
        job = service.jobs.get(config.JOB)
        job.reset(fields.r, fields.t, job.clock.at(arrived), fields.te)
    return responses.response()
