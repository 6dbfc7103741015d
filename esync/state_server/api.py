"""Handlers of the JSON API, /api/v1/…; `operations` lists the calls."""

import contextlib
import os
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .. import config
from ..coordination.coordinator import InvalidError
from ..coordination.straggler_policies import OnlinePolicySettings
from ..coordination.tiers import TierSettings
from ..membership.rendezvous import directory
from ..runtime.environment import Cluster, EnvironmentProblemError
from . import responses, schema, snapshots
from .jobs import Job
from .request import JSON, Call
from .responses import NotFoundError, Response, UnavailableError
from .service import Service

Model = TypeVar("Model", bound=BaseModel)
MOST_AFTER = 2**63 - 1  # largest id in a database
MOST_RUNS = 20  # of a report
RUN = re.compile(r"[0-9a-f]{32}")
PAGE = "text/html"


def begin(service: Service, call: Call) -> Response:
    """Begin a job."""
    wanted = _body(schema.Begin, call)
    watching = None if wanted.watching is None else OnlinePolicySettings.of(wanted.watching.model_dump())
    terms = wanted.num_workers, wanted.epsilon, wanted.slowest_iterations
    tiering = None if wanted.tiering is None else TierSettings.of(wanted.tiering.model_dump())
    job = service.jobs.begin(call.job, *terms, wanted.run, watching, tiering)
    return responses.model(schema.JobSummary(**snapshots.summary(snapshots.CoordinatorSnapshot(job))))


def query(service: Service, call: Call) -> Response:
    """Answer whether a worker shall exchange."""
    asked = _body(schema.Query, call)
    job = service.jobs.get(call.job)
    decision = job.query(
        asked.rank, asked.round, asked.iteration, asked.capability, job.clock.at(call.arrived), asked.round_trip
    )
    answer: dict[str, Any] = {"ready": decision.ready, "lease": decision.lease}
    if job.coordinator.division is not None:
        answer |= {"tier": decision.tier, "left_out": decision.left_out, "share": decision.share}
    return responses.data(answer)


def steps(service: Service, call: Call) -> Response:
    """Take the duration of a worker's steps; answer what the policy against stragglers wants."""
    told = _body(schema.Steps, call)
    job = service.jobs.get(call.job)
    directive = job.tell(told.rank, told.since, told.steps, told.seconds, job.clock.at(call.arrived))
    return responses.data({"apart": directive.excluded, "asynchronous": directive.asynchronous})


def reset(service: Service, call: Call) -> Response:
    """Take the report that a worker has begun a round (RESET)."""
    told = _body(schema.Reset, call)
    job = service.jobs.get(call.job)
    now = job.clock.at(call.arrived)
    job.reset(
        told.rank,
        told.round,
        now,
        rejoin=told.rejoin,
        members=told.taking_part(),
        aside=told.aside,
        exchange=told.exchange,
    )
    return responses.data({})


def report(service: Service, call: Call) -> Response:
    """Take a worker's report of a finished round."""
    told = _body(schema.Report, call)
    job = service.jobs.get(call.job)
    job.report(told, job.clock.at(call.arrived))
    return responses.data({})


def end(service: Service, call: Call) -> Response:
    """End a job."""
    told = _body(schema.End, call)
    job = _existing(service, call)
    job.end(told.reason, job.clock.at(call.arrived))
    return responses.data({})


def jobs(service: Service, call: Call) -> Response:
    """List the jobs."""
    return responses.model(
        schema.JobList(jobs=snapshots.summaries(service.jobs.all()), history=service.history.ready.is_set())
    )


def job(service: Service, call: Call) -> Response:
    """Show one job with its workers."""
    return responses.model(snapshots.view(_existing(service, call), service.history.dropped))


def cluster(service: Service, call: Call) -> Response:
    """Tell for whom the cluster waits."""
    attendance = None
    with contextlib.suppress(EnvironmentProblemError):  # not told where the cluster is
        known = Cluster.from_environment(dict(os.environ))
        attendance = directory.attendance((known.address, known.port))
    missing, advice = ("", "") if attendance is None else (attendance.missing, attendance.advice)
    return responses.model(schema.Cluster(missing=missing, advice=advice))


# --- out of the database --------------------------------------------------------------------------


def rounds(service: Service, call: Call) -> Response:
    """Page through the rounds of a run."""
    after, limit = _page(call)
    from . import history_reader

    newest = call.option("newest", 0, 0, config.HISTORY_PAGE)
    run = _run(service, call)
    rows = history_reader.newest_rounds(run, newest) if newest else history_reader.rounds(run, after, limit)
    return responses.data({"rounds": rows, "next": rows[-1]["id"] if rows else after})


def curves(service: Service, call: Call) -> Response:
    """Show throughput, traffic and accuracy of a whole run over time."""
    points = call.option("points", config.CURVE_POINTS, 2, config.HISTORY_PAGE)
    from . import curves

    return responses.data({**curves.curves(_run(service, call), points)})


def events(service: Service, call: Call) -> Response:
    """Page through the events of a run."""
    after, limit = _page(call)
    from . import history_reader

    rows = history_reader.events(_run(service, call), after, limit)
    return responses.data({"events": rows, "next": rows[-1]["id"] if rows else after})


def runs(service: Service, call: Call) -> Response:
    """List the runs of the history."""
    limit = call.option("limit", 50, 1, config.HISTORY_PAGE)
    job = call.text_option("job")
    if job:
        service.jobs.find(job)  # checks the name
    from . import history_reader

    _need_database(service)
    return responses.data({"runs": history_reader.runs(job, limit)})


def report_page(service: Service, call: Call) -> Response:
    """Show finished runs on one page, as a file to keep or to send."""
    keys = call.text_option("runs").split(",")
    if len(keys) > MOST_RUNS or not all(RUN.fullmatch(key) for key in keys):
        raise InvalidError(
            f"runs must be 1 to {MOST_RUNS} ids of runs with commas between them, as GET /api/v1/runs has them, not "
            f"{call.text_option('runs')[:40]!r}"
        )
    _need_database(service)
    from . import history_report

    headers = (
        ("Content-Type", f"{PAGE}; charset=utf-8"),
        ("Content-Security-Policy", f"{history_report.content_security_policy()}; frame-ancestors 'none'"),
        ("Content-Disposition", 'inline; filename="report.html"'),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
    )
    return Response(200, history_report.page(keys).encode(), common=headers)


def _page(call: Call) -> tuple[int, int]:
    return call.option("after", 0, 0, MOST_AFTER), call.option("limit", config.HISTORY_PAGE, 1, config.HISTORY_PAGE)


def _run(service: Service, call: Call) -> int:
    """Return the primary key of the run that a call names, or of the job's newest run."""
    from . import history_reader

    job = service.jobs.find(call.job)
    _need_database(service)
    named = call.text_option("run")
    if named and not RUN.fullmatch(named):
        raise InvalidError(f"run must be the id of a run, 32 hexadecimal digits, not {named[:40]!r}")
    found = history_reader.find(call.job, named or (job.key if job else ""))
    if found is None:
        raise NotFoundError(f"the history has no {'such run' if named else 'run'} of job {call.job!r} yet")
    return found


def _need_database(service: Service) -> None:
    if not service.history.ready.is_set():
        raise UnavailableError("the database of the history cannot be reached yet")


# --- helpers --------------------------------------------------------------------------------------


def _body(kind: type[Model], call: Call) -> Model:
    """Return the request's body.

    Raises:
        InvalidError: the body does not fit its schema; the message names what is wrong.
    """
    if call.content_type != JSON:
        raise InvalidError(f"send the body as JSON (Content-Type: {JSON}), not {call.content_type[:80]!r}")
    try:
        return kind.model_validate_json(call.body)
    except ValidationError as error:
        raise InvalidError("; ".join(_words(problem) for problem in error.errors()[:3])) from None


def _words(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])[:80]
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])


def _existing(service: Service, call: Call) -> Job:
    found = service.jobs.find(call.job)
    if found is None:
        raise NotFoundError(f"there is no job {call.job!r}; GET /api/v1/jobs lists those that there are")
    return found
