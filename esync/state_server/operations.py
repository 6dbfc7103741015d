"""The table of API calls, for the web server and for the OpenAPI description."""

from . import api, legacy_api, openapi, schema, static
from .operation import Operation
from .request import Call
from .responses import Response
from .service import Service

PREFIX = "/api/v1/"
_JOBS = PREFIX + "jobs/"


def _describe(service: Service, call: Call) -> Response:
    """Describe the API (this document)."""
    return Response(200, openapi.description(API))


_PAGE = ("after", "limit", "run")
_ROUNDS = (*_PAGE, "newest")
_CURVES = ("points", "run")

PUBLISHED = (
    Operation("GET", "/", legacy_api.home),
    Operation("POST", "/init/", legacy_api.init),
    Operation("POST", "/apply/", legacy_api.apply),
    Operation("POST", "/reset/", legacy_api.reset),
)
API = (
    Operation("GET", _JOBS.rstrip("/"), api.jobs, answer=schema.JobList),
    Operation("GET", _JOBS + "{job}", api.job, answer=schema.JobView, refusals=(404,)),
    Operation("POST", _JOBS + "{job}", api.begin, schema.Begin, schema.JobSummary, (409, 413, 503)),
    Operation("POST", _JOBS + "{job}/query", api.query, schema.Query, schema.Decision, (409, 413)),
    Operation("POST", _JOBS + "{job}/steps", api.steps, schema.Steps, schema.Directive, (409, 413)),
    Operation("POST", _JOBS + "{job}/reset", api.reset, schema.Reset, schema.Nothing, (409, 413)),
    Operation("POST", _JOBS + "{job}/report", api.report, schema.Report, schema.Nothing, (409, 413)),
    Operation("POST", _JOBS + "{job}/end", api.end, schema.End, schema.Nothing, (404, 413)),
    Operation("GET", _JOBS + "{job}/rounds", api.rounds, None, schema.Rounds, (404, 503), _ROUNDS, slow=True),
    Operation("GET", _JOBS + "{job}/curves", api.curves, None, schema.Curves, (404, 503), _CURVES, slow=True),
    Operation("GET", _JOBS + "{job}/events", api.events, None, schema.Events, (404, 503), options=_PAGE, slow=True),
    Operation("GET", PREFIX + "cluster", api.cluster, answer=schema.Cluster, slow=True),
    Operation("GET", PREFIX + "runs", api.runs, None, schema.Runs, (503,), ("job", "limit"), slow=True),
    Operation("GET", PREFIX + "report", api.report_page, None, api.PAGE, (404, 503), ("runs",), slow=True),
    Operation("GET", openapi.PATH, _describe),
)

PAGES = (
    Operation("GET", static.HOME.rstrip("/"), static.redirect, public=True),
    *(Operation("GET", path, static.show(path), public=True) for path in static.assets()),
)

Methods = dict[str, Operation]
_EXACT: dict[str, Methods] = {}
_OF_JOB: dict[str, Methods] = {}
for _operation in PUBLISHED + API + PAGES:
    _head, _, _action = _operation.path.partition("{job}")
    _table, _key = (_OF_JOB, _action) if _head != _operation.path else (_EXACT, _operation.path)
    _table.setdefault(_key, {})[_operation.method] = _operation
    if _operation.method == "GET":
        _table[_key]["HEAD"] = _operation


def find(path: str, accept: bytes = b"") -> tuple[Methods, str] | None:
    """Return the calls of a path by method, and the job that it names.

    Returns None for an unknown path.

    A browser that opens / is sent to the dashboard; `accept` is the header Accept.
    """
    if path == "/" and static.wants_page(accept):
        path = static.HOME.rstrip("/")
    methods = _EXACT.get(path)
    if methods is not None:
        return methods, ""
    if not path.startswith(_JOBS):
        return None
    job, slash, action = path[len(_JOBS) :].partition("/")
    methods = _OF_JOB.get(slash + action)
    return (methods, job) if methods is not None else None
