"""The published calls: GET /, POST /init/, /apply/ and /reset/ (fields and answers as the public ESync code has them).

Fields beyond the published ones are optional: `slowest_iterations` and `run` with /init/, the round `t` with /apply/.
"""

import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from esync import config
from esync.coordination.coordinator import Coordinator, RefusedError

from . import answers, jobs
from .fields import Fields, TooLargeError

View = Callable[[HttpRequest], HttpResponse]


def _post(call: Callable[[Fields, float], HttpResponse]) -> View:
    """Make a view out of a function of the form's fields and the time of arrival (seconds, monotonic clock)."""

    def view(request: HttpRequest) -> HttpResponse:
        now = time.monotonic()
        if request.method != "POST":
            return _wrong_method(request, "POST")
        try:
            return call(Fields(request), now)
        except TooLargeError as reason:
            return answers.error(413, str(reason))
        except RefusedError as reason:
            return answers.refused(reason)

    return view


def _wrong_method(request: HttpRequest, allowed: str) -> HttpResponse:
    response = answers.error(405, f"{request.path} takes {allowed} only")
    response["Allow"] = allowed
    return response


def home(request: HttpRequest) -> HttpResponse:
    """Show the records of the job."""
    if request.method not in ("GET", "HEAD"):
        return _wrong_method(request, "GET, HEAD")
    try:
        return answers.data(jobs.default.coordinator.snapshot())
    except RefusedError:
        before = {"num_workers": 0, "t": 1, "epsilon": config.EPSILON_PUBLISHED, "slowest_iterations": 1, "records": []}
        return answers.data(before)


@_post
def init(fields: Fields, now: float) -> HttpResponse:
    """Begin a new training."""
    coordinator = Coordinator(
        num_workers=fields.whole("num_workers"),
        epsilon=fields.number("epsilon", config.EPSILON_PUBLISHED),
        slowest_iterations=fields.whole("slowest_iterations", config.SLOWEST_ITERATIONS),
    )
    jobs.default.init(coordinator, now, run=fields.text("run", ""))
    return answers.empty()


@_post
def apply(fields: Fields, now: float) -> HttpResponse:
    """Answer whether the worker shall exchange (1) or train on (0)."""
    ready = jobs.default.coordinator.apply(
        rank=fields.whole("r"),
        iteration=fields.whole("k"),
        capability=fields.number("c"),
        te=fields.number("te"),
        round=fields.whole_if_given("t"),
        now=now,
    )
    return answers.data({"ready": int(ready)})


@_post
def reset(fields: Fields, now: float) -> HttpResponse:
    """Take the report that a worker has begun a round."""
    jobs.default.coordinator.reset(rank=fields.whole("r"), round=fields.whole("t"), te=fields.number("te"), now=now)
    return answers.empty()
