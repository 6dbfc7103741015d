"""Handlers of the published API: GET /, POST /init/, /apply/ and /reset/.

Fields and answers are those of the public ESync code. The calls concern the job `default`. Further
fields are optional: `slowest_iterations` and `run` in /init/, the round `t` in /apply/, `rejoin`
and `members` in /reset/.
"""

import re

from .. import config
from ..coordination.coordinator import InvalidError
from . import responses
from .request import Call, FormFields
from .responses import Response
from .service import Service

_MEMBERS = re.compile(r"[0-9]{1,5}(,[0-9]{1,5})*")


def home(service: Service, call: Call) -> Response:
    """Show the records of the job."""
    job = service.jobs.find(config.JOB)
    if job is not None:
        return responses.data(job.coordinator.snapshot())
    before = {"num_workers": 0, "t": 1, "epsilon": config.EPSILON_PUBLISHED, "slowest_iterations": 1, "records": []}
    return responses.data(before)


def init(service: Service, call: Call) -> Response:
    """Begin a new training."""
    fields = FormFields(call)
    service.jobs.begin(
        config.JOB,
        num_workers=fields.whole("num_workers"),
        epsilon=fields.number("epsilon", config.EPSILON_PUBLISHED),
        slowest_iterations=fields.whole("slowest_iterations", config.SLOWEST_ITERATIONS),
        run=fields.text("run", ""),
    )
    return responses.EMPTY


def apply(service: Service, call: Call) -> Response:
    """Answer whether the worker shall exchange (1) or train on (0)."""
    fields = FormFields(call)
    job = service.jobs.get(config.JOB)
    ready = job.apply(
        rank=fields.whole("r"),
        iteration=fields.whole("k"),
        capability=fields.number("c"),
        now=job.clock.at(call.arrived),
        te=fields.number("te"),
        round=fields.whole_if_given("t"),
    )
    return responses.data({"ready": int(ready)})


def reset(service: Service, call: Call) -> Response:
    """Take the report that a worker has begun a round."""
    fields = FormFields(call)
    job = service.jobs.get(config.JOB)
    job.reset(
        rank=fields.whole("r"),
        round=fields.whole("t"),
        now=job.clock.at(call.arrived),
        te=fields.number("te"),
        rejoin=bool(fields.whole("rejoin", 0)),
        members=_members(fields.text("members", "", config.STATE_SERVER_MAX_BODY)),
    )
    return responses.EMPTY


def _members(text: str) -> list[int] | None:
    if not text:
        return None
    if not _MEMBERS.fullmatch(text):
        raise InvalidError(f"members must be ranks separated by commas, as in 0,1,3, not {text[:40]!r}")
    return [int(rank) for rank in text.split(",")]
