"""Django's way to the calls: to all of them under `manage.py runserver`, otherwise to those that read the database."""

import time
from collections.abc import Callable

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, UnreadablePostError

from . import answers, operations, service
from .answers import Answer
from .call import Call

GetResponse = Callable[[HttpRequest], HttpResponse]


def gate(get_response: GetResponse) -> GetResponse:
    """Middleware: let in only whom the gate lets in."""

    def middleware(request: HttpRequest) -> HttpResponse:
        headers, method = _headers(request), request.method or ""
        found = operations.find(request.path, headers.get(b"accept", b""))
        operation = found[0].get(method) if found else None
        public = operation is not None and operation.public
        refusal = service.current().gate.refuse(method, headers, public)
        return get_response(request) if refusal is None else respond(refusal)

    return middleware


def call(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Answer one of the calls."""
    arrived = time.monotonic()
    headers = _headers(request)
    found = operations.find(request.path, headers.get(b"accept", b""))
    if found is None:
        return respond(answers.not_found(request.path))
    methods, job = found
    operation = methods.get(request.method or "")
    if operation is None:
        return respond(answers.wrong_method(request.path, ", ".join(methods)))
    try:
        body = request.body
    except RequestDataTooBig:
        return respond(answers.too_large())
    except UnreadablePostError:
        return respond(answers.error(400, "the connection ended before the body was complete"))
    query = request.META.get("QUERY_STRING", "")
    return respond(operation.run(service.current(), Call(arrived, body, headers, job, query)))


def respond(answer: Answer) -> HttpResponse:
    """Turn an answer into Django's kind."""
    response = HttpResponse(answer.body, status=answer.status)
    response["Content-Length"] = str(len(answer.body))  # lets every server keep the connection open
    for name, value in (*answer.common, *answer.headers):
        if name != "Connection":  # not an application's business here
            response[name] = value
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses."""
    return respond(answers.error(400, "the request could not be read"))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown path."""
    return respond(answers.not_found(request.path))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an unexpected exception, which Django has logged with its traceback."""
    return respond(answers.failed())


def _headers(request: HttpRequest) -> dict[bytes, bytes]:
    headers = {
        key[5:].replace("_", "-").lower().encode(): value.encode("latin-1", "replace")
        for key, value in request.META.items()
        if key.startswith("HTTP_")
    }
    headers[b"content-type"] = request.META.get("CONTENT_TYPE", "").encode("latin-1", "replace")
    return headers
