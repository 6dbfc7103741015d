"""The ASGI application: answers the calls of `operations` itself, at once, and leaves everything else to Django.

All calls that touch a job are answered one after the other in the thread of the event loop, so no lock is ever waited
for. Calls that read the database, and pages, run in Django's threads.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from esync import config

from . import answers, operations
from .answers import JSON_HEADERS, Answer
from .call import Call
from .service import Service

#: Under this name, a request's state has what is to be called when it is complete and let in.
WELCOME = "welcome"
#: Statuses of requests that made sense: where there is no token, they show that the caller belongs here.
_MEANT = (200, 404, 409)

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_JSON_HEADERS = [(name.lower().encode(), value.encode()) for name, value in JSON_HEADERS]


def _nothing() -> None:
    """Another web server than ours does not ask."""


class _Gone(Exception):  # noqa: N818 - no error
    """The caller has gone before its request was complete."""


class Front:
    """The application.

    Args:
        service: what the calls are about.
        django: answers the rest.
    """

    def __init__(self, service: Service, django: Application) -> None:
        self._service, self._django = service, django

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"nothing here answers {scope['type']}")
        arrived = time.monotonic()
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        found = operations.find(path, headers.get(b"accept", b""))
        operation = found[0].get(method) if found else None
        public = operation is not None and operation.public
        answer = self._service.gate.refuse(method, headers, public=public)
        if answer is not None:
            await _send(send, answer, method)
            return
        try:
            body = await _read(receive, headers)
        except _Gone:
            return
        welcome = scope.get("state", {}).get(WELCOME, _nothing)
        if body is None:
            answer = answers.too_large()
        elif found is None or (operation is not None and operation.database):
            if operation is not None or self._service.gate.knows_callers:
                welcome()
            await self._django(scope, _Replay(body, receive), send)
            return
        elif operation is None:
            answer = answers.wrong_method(path, ", ".join(found[0]))
        else:
            query = scope["query_string"].decode("latin-1")
            answer = operation.run(self._service, Call(arrived, body, headers, found[1], query))
        if not public and (self._service.gate.knows_callers or answer.status in _MEANT):
            welcome()
        await _send(send, answer, method)


async def _read(receive: Receive, headers: dict[bytes, bytes]) -> bytes | None:
    """Return the body, or None if it is too large."""
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > config.STATE_SERVER_MAX_BODY:
        return None
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > config.STATE_SERVER_MAX_BODY:
            return None
        if not message.get("more_body", False):
            return body


async def _send(send: Send, answer: Answer, method: str) -> None:
    headers = list(_JSON_HEADERS) if answer.common is JSON_HEADERS else _encoded(answer.common)
    headers.append((b"content-length", str(len(answer.body)).encode()))
    headers += _encoded(answer.headers)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers]


class _Replay:
    """Hands a body that has been read to another application; after that, waits for the caller to go."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
