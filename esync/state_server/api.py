"""The JSON API, /api/v1/…: Django Ninja checks requests by `schema` and describes them in OpenAPI."""

import contextlib
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ParamSpec

from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST
from ninja import NinjaAPI, Path, Query
from ninja.errors import HttpError
from ninja.errors import ValidationError as NinjaValidationError
from ninja.operation import Operation
from ninja.security.http import HttpAuthBase
from pydantic import ValidationError, WithJsonSchema

from .. import config
from ..coordination.coordinator import InvalidError
from ..coordination.straggler_policies import OnlinePolicySettings
from ..coordination.tier_settings import TierSettings
from ..membership.rendezvous import directory
from ..runtime.environment import Cluster, EnvironmentProblemError
from ..runtime.worker_environment import JOB
from ..version import __version__
from . import curves as history_curves
from . import history_reader, responses, schema, snapshots
from .jobs import Job
from .registry import check_name
from .responses import NotFoundError, UnavailableError
from .service import service

Parameters = ParamSpec("Parameters")
MAX_AFTER = 2**63 - 1  # largest id in a database
KEY = re.compile(r"[0-9a-f]{32}")

# Parameters of paths and queries. Names of jobs are checked by the registry, in words.
_NAME = WithJsonSchema({"type": "string", "pattern": f"^{JOB.pattern}$"})
_NO_NAME = WithJsonSchema({"type": "string", "pattern": f"^({JOB.pattern})?$"})
_NO_KEY = WithJsonSchema({"type": "string", "pattern": f"^({KEY.pattern})?$"})
_PAGE = config.HISTORY_PAGE
JobName = Annotated[str, _NAME, Path(..., description="name of the job")]
OfJob = Annotated[str, _NO_NAME, Query("", description="only runs of this job")]
After = Annotated[int, Query(0, ge=0, le=MAX_AFTER, description="only rows after the one of this id")]
Limit = Annotated[int, Query(_PAGE, ge=1, le=_PAGE, description="largest number of rows")]
RunLimit = Annotated[int, Query(50, ge=1, le=_PAGE, description="largest number of rows")]
Newest = Annotated[
    int, Query(0, ge=0, le=_PAGE, description="return this many of the newest rows instead of a page, if above 0")
]
Points = Annotated[int, Query(config.CURVE_POINTS, ge=2, le=_PAGE, description="largest number of points of a curve")]
RunKey = Annotated[str, _NO_KEY, Query("", description="id of a run; the newest run without it")]


class Token(HttpAuthBase):
    """The token in the OpenAPI description; `AccessMiddleware` checks it."""

    openapi_scheme = "bearer"

    def __call__(self, request: HttpRequest) -> bool:
        """Accept the request."""
        return True


class API(NinjaAPI):
    """Names operations by their functions."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return an operation's id."""
        return operation.view_func.__name__


api = API(
    title="ESync state server",
    version=__version__,
    description="Which worker is ready to exchange, and what the workers did. The published calls /, /init/, /apply/ "
    "and /reset/ stand beside this and mean the job `default`.",
    docs_url=None,
    servers=[{"url": "/"}],
    auth=Token(),
)


@api.exception_handler(NinjaValidationError)
def _invalid(request: HttpRequest, error: NinjaValidationError) -> HttpResponse:
    problems = [{**problem, "loc": _place(problem["loc"])} for problem in error.errors]
    raise InvalidError(responses.words(problems)) from None


@api.exception_handler(HttpError)
def _unreadable(request: HttpRequest, error: HttpError) -> HttpResponse:
    raise InvalidError(str(error)) from None


def _place(location: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the location of a problem in the request, without the names that Ninja adds."""
    return location[2:] if location[0] == "body" else location[1:]


def _responses(answer: Any, *refusals: int) -> dict[int, Any]:
    return {200: answer, **dict.fromkeys((400, 401, *refusals), schema.Problem)}


# --- threads ----------------------------------------------------------------------------------------

_SWITCH_INTERVAL = sys.getswitchinterval()
_places = threading.BoundedSemaphore(config.STATE_SERVER_THREADS - 1)
_database = threading.Lock()
_yielding = 0
_counting = threading.Lock()


@contextlib.contextmanager
def yielding() -> Iterator[None]:
    """Switch threads more often during a slow view; always doing so would cost a quarter of the throughput."""
    global _yielding
    with _counting:
        _yielding += 1
        sys.setswitchinterval(config.STATE_SERVER_SWITCH_INTERVAL)
    try:
        yield
    finally:
        with _counting:
            _yielding -= 1
            if not _yielding:
                sys.setswitchinterval(_SWITCH_INTERVAL)


def slow(view: Callable[Parameters, HttpResponse]) -> Callable[Parameters, HttpResponse]:
    """Decorate a slow view: one runs at a time, and one thread is always free for workers' queries.

    Raises:
        UnavailableError: all other threads are busy.
    """

    @functools.wraps(view)
    def limited(*positional: Parameters.args, **keywords: Parameters.kwargs) -> HttpResponse:
        if not _places.acquire(blocking=False):
            raise UnavailableError("too many requests for the history at the same time")
        try:
            with _database, yielding():
                return view(*positional, **keywords)
        finally:
            close_old_connections()
            _places.release()

    return limited


# --- from the coordinator's memory ----------------------------------------------------------------


@api.get("/jobs", response=_responses(schema.JobList))
@yielding()
def jobs(request: HttpRequest) -> HttpResponse:
    """List the jobs."""
    with service.lock:
        copies = [snapshots.JobSnapshot(job) for job in service.jobs.all()]
    summaries = [snapshots.summary(job) for job in copies]
    return responses.data({"jobs": summaries, "history": service.history.ready.is_set()})


@api.get("/jobs/{job}", response=_responses(schema.JobView, 404))
@yielding()
def job(request: HttpRequest, job: JobName) -> HttpResponse:
    """Show one job with its workers."""
    with service.lock:
        copy = snapshots.JobSnapshot(_existing(job))
    return responses.data(snapshots.view(copy, service.history.dropped))


@api.post("/jobs/{job}", response=_responses(schema.JobSummary, 409, 413, 503))
def begin(request: HttpRequest, job: JobName, message: schema.Begin) -> HttpResponse:
    """Begin a job."""
    watching = None if message.watching is None else OnlinePolicySettings(**message.watching.model_dump())
    terms = message.num_workers, message.epsilon, message.slowest_iterations
    tiering = None if message.tiering is None else TierSettings.of(message.tiering.model_dump())
    with service.lock:
        copy = snapshots.JobSnapshot(service.jobs.begin(job, *terms, message.run, watching, tiering))
    return responses.data(snapshots.summary(copy))


@require_POST
def query(request: HttpRequest, job: str) -> HttpResponse:
    """Answer whether a worker is to exchange.

    Workers call this once per iteration. It bypasses Ninja, which would double its time;
    `described_query` describes it.
    """
    arrived = time.monotonic()
    try:
        message = schema.Query.model_validate_json(request.body)
    except ValidationError as error:
        raise InvalidError(responses.words(error.errors())) from None
    return _decide(job, message, arrived)


@api.post("/jobs/{job}/query", response=_responses(schema.Decision, 409, 413), operation_id="query")
def described_query(request: HttpRequest, message: schema.Query, job: JobName) -> HttpResponse:
    """Answer whether a worker is to exchange."""
    return _decide(job, message, time.monotonic())


def _decide(name: str, message: schema.Query, arrived: float) -> HttpResponse:
    with service.lock:
        job = service.jobs.get(name)
        decision = job.query(
            message.rank,
            message.round,
            message.iteration,
            message.capability,
            job.clock.at(arrived),
            message.round_trip,
        )
        divided = job.coordinator.division is not None
    answer: dict[str, Any] = {"ready": decision.ready, "lease": decision.lease}
    if divided:
        answer |= {"tier": decision.tier, "left_out": decision.left_out, "share": decision.share}
    if decision.iterations:
        answer |= {"iterations": decision.iterations, "compression": decision.compression}
    return responses.data(answer)


@api.post("/jobs/{job}/steps", response=_responses(schema.Directive, 409, 413))
def steps(request: HttpRequest, message: schema.Steps, job: JobName) -> HttpResponse:
    """Record the duration of a worker's steps; answer with the directive of the policy against stragglers."""
    with service.lock:
        present = service.jobs.get(job)
        directive = present.record_steps(
            message.rank, message.since, message.steps, message.seconds, present.clock.now()
        )
    return responses.data({"apart": directive.excluded, "asynchronous": directive.asynchronous})


@api.post("/jobs/{job}/reset", response=_responses(schema.Nothing, 409, 413))
def reset(request: HttpRequest, message: schema.Reset, job: JobName) -> HttpResponse:
    """Record that a worker has begun a round (RESET)."""
    with service.lock:
        present = service.jobs.get(job)
        present.reset(
            message.rank,
            message.round,
            present.clock.now(),
            rejoin=message.rejoin,
            members=message.participants(),
            aside=message.aside,
            exchange=message.exchange,
        )
    return responses.data({})


@api.post("/jobs/{job}/report", response=_responses(schema.Nothing, 409, 413))
def report(request: HttpRequest, message: schema.Report, job: JobName) -> HttpResponse:
    """Record a worker's report of a finished round."""
    with service.lock:
        present = service.jobs.get(job)
        present.report(message, present.clock.now())
    return responses.data({})


@api.post("/jobs/{job}/end", response=_responses(schema.Nothing, 404, 413))
def end(request: HttpRequest, message: schema.End, job: JobName) -> HttpResponse:
    """End a job."""
    with service.lock:
        present = _existing(job)
        present.end(message.reason, present.clock.now())
    return responses.data({})


def _existing(name: str) -> Job:
    present = service.jobs.find(name)
    if present is None:
        raise NotFoundError(f"there is no job {name!r}; GET /api/v1/jobs lists those that there are")
    return present


# --- slow views: the database, the scheduler ------------------------------------------------------


@api.get("/cluster", response=_responses(schema.Cluster))
@slow
def cluster(request: HttpRequest) -> HttpResponse:
    """Show which processes the cluster waits for."""
    attendance = None
    with contextlib.suppress(EnvironmentProblemError):  # the address of the scheduler is unknown
        configured = Cluster.from_environment(dict(os.environ))
        attendance = directory.attendance((configured.address, configured.port))
    missing, advice = ("", "") if attendance is None else (attendance.missing, attendance.advice)
    return responses.data({"missing": missing, "advice": advice})


@api.get("/jobs/{job}/rounds", response=_responses(schema.Rounds, 404, 503))
@slow
def rounds(request: HttpRequest, job: JobName, after: After, limit: Limit, run: RunKey, newest: Newest) -> HttpResponse:
    """Page through the rounds of a run."""
    key = _run(job, run)
    rows = history_reader.newest_rounds(key, newest) if newest else history_reader.rounds(key, after, limit)
    return responses.data({"rounds": rows, "next": rows[-1]["id"] if rows else after})


@api.get("/jobs/{job}/curves", response=_responses(schema.Curves, 404, 503))
@slow
def curves(request: HttpRequest, job: JobName, points: Points, run: RunKey) -> HttpResponse:
    """Show throughput, traffic and accuracy of a whole run over time."""
    return responses.data(history_curves.curves(_run(job, run), points))


@api.get("/jobs/{job}/events", response=_responses(schema.Events, 404, 503))
@slow
def events(request: HttpRequest, job: JobName, after: After, limit: Limit, run: RunKey) -> HttpResponse:
    """Page through the events of a run."""
    rows = history_reader.events(_run(job, run), after, limit)
    return responses.data({"events": rows, "next": rows[-1]["id"] if rows else after})


@api.get("/runs", response=_responses(schema.Runs, 503))
@slow
def runs(request: HttpRequest, job: OfJob, limit: RunLimit) -> HttpResponse:
    """List the runs of the history."""
    if job:
        check_name(job)
    _need_database()
    return responses.data({"runs": history_reader.runs(job, limit)})


def _run(name: str, key: str) -> int:
    """Return the primary key of a job's run: the one with that id, or the newest."""
    with service.lock:
        job = service.jobs.find(name)
        newest = job.key if job else ""
    _need_database()
    if key and not KEY.fullmatch(key):
        raise InvalidError(f"run must be the id of a run, 32 hexadecimal digits, not {key[:40]!r}")
    run = history_reader.find(name, key or newest)
    if run is None:
        raise NotFoundError(f"the history has no {'such run' if key else 'run'} of job {name!r} yet")
    return run


def _need_database() -> None:
    if not service.history.ready.is_set():
        raise UnavailableError("the database of the history cannot be reached yet")
