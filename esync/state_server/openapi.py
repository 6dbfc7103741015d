"""OpenAPI description of the JSON API, made from the table of calls and their schemas."""

import json
from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from .. import config
from ..version import __version__
from . import schema
from .api import MOST_AFTER, MOST_RUNS, RUN
from .operation import Operation
from .registry import NAME

#: Path at which the description is served.
PATH = "/api/v1/openapi.json"
#: Status of a refusal → what it means.
REFUSALS = {
    400: "The request makes no sense; the text names what was expected.",
    401: "The token is missing or wrong.",
    404: "There is no such job.",
    409: "The request does not fit the job's state. With Retry-After: it may later.",
    413: "The body is too large.",
    503: "The database of the history cannot be reached, or the disk is full.",
}
_NAME = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_OPTIONS = {
    "after": ("only rows after the one of this id", {"type": "integer", "minimum": 0, "maximum": MOST_AFTER}),
    "limit": ("largest number of rows", {"type": "integer", "minimum": 1, "maximum": config.HISTORY_PAGE}),
    "newest": (
        "number of the newest rows to return instead of a page; 0: return a page",
        {"type": "integer", "minimum": 0, "maximum": config.HISTORY_PAGE},
    ),
    "points": (
        "largest number of points of a curve",
        {"type": "integer", "minimum": 2, "maximum": config.HISTORY_PAGE},
    ),
    "run": ("id of a run; the newest run without it", {"type": "string", "pattern": f"^{RUN.pattern}$"}),
    "runs": (
        f"ids of runs, separated by commas; at most {MOST_RUNS}",
        {"type": "string", "pattern": f"^{RUN.pattern}(,{RUN.pattern}){{0,{MOST_RUNS - 1}}}$"},
    ),
    "job": ("only runs of this job", _NAME),
}
#: Names of options without which a call means nothing.
_REQUIRED = {"runs"}
_JOB = {
    "name": "job",
    "in": "path",
    "required": True,
    "description": "name of the job",
    "schema": _NAME,
}


@cache
def description(operations: tuple[Operation, ...]) -> bytes:
    """Return the description of these calls, as JSON."""
    named = {model for operation in operations for model in (operation.body, operation.answer)}
    models = {model for model in named if model is not None and not isinstance(model, str)}
    models.add(schema.Problem)
    modes = [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)]
    _, definitions = models_json_schema(modes, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    content = {
        "openapi": "3.1.0",
        "info": {
            "title": "ESync state server",
            "version": __version__,
            "description": "Which worker is ready to exchange, and what the workers did. The published calls /, "
            "/init/, /apply/ and /reset/ stand beside this and mean the job `default`.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return json.dumps(content).encode()


def _operation(operation: Operation) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done."}
    if isinstance(operation.answer, str):
        success["content"] = {operation.answer: {"schema": {"type": "string"}}}
    elif operation.answer is not None:
        success["content"] = _content(operation.answer.__name__)
    elif operation.path == PATH:
        success["content"] = {"application/json": {"schema": {"type": "object"}}}
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__.strip("_"),
        "summary": (operation.handler.__doc__ or "").strip().rstrip("."),
        "responses": {
            "200": success,
            **{
                str(status): {"description": REFUSALS[status], "content": _content("Problem")}
                for status in sorted({400, 401, *operation.refusals})
            },
        },
    }
    parameters: list[dict[str, Any]] = [_JOB] if "{job}" in operation.path else []
    for name in operation.options:
        meaning, kind = _OPTIONS[name]
        needed = {"required": True} if name in _REQUIRED else {}
        parameters.append({"name": name, "in": "query", **needed, "description": meaning, "schema": kind})
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body.__name__)}
    return described


def _content(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
