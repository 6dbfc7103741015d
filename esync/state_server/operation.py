"""An API call: its method and path, its handler, and how its failures are reported."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from ..coordination.coordinator import RefusedError
from . import responses
from .request import Call
from .responses import Response
from .service import Service

logger = logging.getLogger("esync.state_server")


@dataclass(frozen=True)
class Operation:
    """An API call.

    Attributes:
        method: the HTTP method.
        path: the path, with {job} in the place of a job's name.
        handler: returns the answer.
        body: schema of the request's body; None without one.
        answer: schema of the answer with status 200, or the media type of one that is not JSON;
            None without one.
        refusals: statuses, beside 400 and 401, with which it may be refused.
        options: names of the query parameters.
        slow: whether it may take some time, because it reads the database or asks the scheduler.
        public: whether it needs no token, because it tells nothing about jobs.
    """

    method: str
    path: str
    handler: Callable[[Service, Call], Response]
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | str | None = None
    refusals: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    slow: bool = False
    public: bool = False

    def run(self, service: Service, call: Call) -> Response:
        """Return the answer to a request; no exception leaves this method."""
        try:
            return self.handler(service, call)
        except RefusedError as reason:
            return responses.refused(reason)
        except Exception as error:
            if self.slow and _is_away(error):
                return responses.refused(responses.UnavailableError("the database of the history cannot be reached"))
            logger.exception("unexpected failure of %s %s", self.method, self.path)
            return responses.failed()


def _is_away(error: Exception) -> bool:
    from django.db import Error

    return isinstance(error, Error)
