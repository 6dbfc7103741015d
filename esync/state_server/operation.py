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
        method: of HTTP.
        path: with {job} where a job's name stands.
        handler: answers it.
        body: what is sent, if anything.
        answer: what comes back with status 200.
        refusals: statuses, beside 400 and 401, with which it may be refused.
        options: names behind the question mark.
        database: it reads the database, and so may take its time.
        public: it tells nothing about jobs, and needs no token.
    """

    method: str
    path: str
    handler: Callable[[Service, Call], Response]
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    refusals: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    database: bool = False
    public: bool = False

    def run(self, service: Service, call: Call) -> Response:
        """Answer a request, whatever happens."""
        try:
            return self.handler(service, call)
        except RefusedError as reason:
            return responses.refused(reason)
        except Exception as error:
            if self.database and _is_away(error):
                return responses.refused(responses.UnavailableError("the database of the history cannot be reached"))
            logger.exception("unexpected failure of %s %s", self.method, self.path)
            return responses.failed()


def _is_away(error: Exception) -> bool:
    from django.db import Error

    return isinstance(error, Error)
