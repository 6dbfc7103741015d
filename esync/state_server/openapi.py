"""OpenAPI description of the JSON API, made from the table of calls and the classes of their bodies."""

import json
from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from .. import config
from ..version import __version__
from . import schema
from .api import MOST_AFTER, RUN
from .operation import Operation
from .registry import NAME

#: Where the description is served.
PATH = "/api/v1/openapi.json"
_REFUSALS = {
    400: "The request makes no sense; the text names what was expected.",
    401: "The token is missing or wrong.",
    404: "There is no such job.",
    409: "It does not fit what the job is doing. With Retry-After: not yet.",
    413: "The body is too large.",
    503: "The database of the history cannot be reached.",
}
_NAME = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_OPTIONS = {
    "after": ("only what came after the row of this id", {"type": "integer", "minimum": 0, "maximum": MOST_AFTER}),
    "limit": ("rows of the answer at most", {"type": "integer", "minimum": 1, "maximum": config.HISTORY_PAGE}),
    "newest": (
        "so many of those that came last, instead; 0: no",
        {"type": "integer", "minimum": 0, "maximum": config.HISTORY_PAGE},
    ),
    "points": ("of a curve at most", {"type": "integer", "minimum": 2, "maximum": config.HISTORY_PAGE}),
    "run": ("id of a run; without it the newest", {"type": "string", "pattern": f"^{RUN.pattern}$"}),
    "job": ("only runs of this job", _NAME),
}
_JOB = {
    "name": "job",
    "in": "path",
    "required": True,
    "description": "name of the job",
    "schema": _NAME,
}


@cache
def description(operations: tuple[Operation, ...]) -> bytes:
    """Return the description of these calls as JSON."""
    models = {model for operation in operations for model in (operation.body, operation.answer) if model is not None}
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
    if operation.answer is not None:
        success["content"] = _content(operation.answer.__name__)
    elif operation.path == PATH:
        success["content"] = {"application/json": {"schema": {"type": "object"}}}
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__.strip("_"),
        "summary": (operation.handler.__doc__ or "").strip().rstrip("."),
        "responses": {
            "200": success,
            **{
                str(status): {"description": _REFUSALS[status], "content": _content("Problem")}
                for status in sorted({400, 401, *operation.refusals})
            },
        },
    }
    parameters: list[dict[str, Any]] = [_JOB] if "{job}" in operation.path else []
    for name in operation.options:
        meaning, kind = _OPTIONS[name]
        parameters.append({"name": name, "in": "query", "description": meaning, "schema": kind})
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body.__name__)}
    return described


def _content(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
