"""The blocking client of a state server's JSON API, version 1."""

import logging
import math
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .. import config
from ..runtime.closing import Closing
from ..runtime.errors import ExpectedError
from ..runtime.futures import Completed, Handle
from ..runtime.watchdog import WatchedWait
from . import JobSettings
from .decision import ExchangeDecision
from .http_client import HTTPClient
from .straggler_policies import PolicyDirective

log = logging.getLogger(__name__)


class StateServerError(ExpectedError):
    """The state server did not answer in time, or refused the call.

    The message names its address and the reason.
    """


#: Optional field of an answer → its type.
_OPTIONAL = {"tier": int, "left_out": bool, "share": float, "iterations": int, "compression": str}


class StateServerClient(Closing):
    """One worker's `Coordination` over HTTP, for one thread at a time.

    Args:
        host: name or address of the state server.
        port: its port.
        rank: of this worker.
        timeout: seconds of one attempt.
        patience: seconds of failed attempts after which a call fails.
        job: name of the training; several of them share one state server.
    """

    def __init__(
        self,
        host: str,
        port: int | str = config.STATE_SERVER_PORT,
        rank: int = 0,
        timeout: float = config.STATE_SERVER_TIMEOUT,
        patience: float = config.STATE_SERVER_PATIENCE,
        job: str = config.JOB,
    ) -> None:
        self.rank = rank
        self.round = 1
        self._http = HTTPClient(host, int(port), timeout)
        self._patience = patience
        self._path = f"/api/v1/jobs/{job}"
        self._run = uuid.uuid4().hex  # distinguishes a repeated call of `init` from another training
        self._round_trip: float | None = None

    @property
    def address(self) -> str:
        """URL of the state server."""
        return self._http.url

    @property
    def round_trip(self) -> float:
        """See `Coordination`."""
        return self._round_trip or 0.0

    def init(self, settings: JobSettings) -> None:
        """Begin a training (see `Coordination.init`).

        While another training is going on under that name, this waits for its end.

        Raises:
            StateServerError: no answer, or a refusal, for longer than the patience lasts.
        """
        fields = {name: value for name, value in asdict(settings).items() if value is not None}
        self._call(self._path, {**fields, "run": self._run})

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """Ask whether to exchange (see `Coordination.ask`), and wait for the answer.

        Returns:
            A handle that is done.

        Raises:
            StateServerError: no answer for longer than the patience lasts, or a refusal.
        """
        query: dict[str, Any] = {
            "rank": self.rank,
            "round": self.round,
            "iteration": iteration,
            "capability": capability,
        }
        if self._round_trip is not None:
            query["round_trip"] = self._round_trip
        answer = self._call(f"{self._path}/query", query)
        self._round_trip = self._http.duration
        try:
            options: dict[str, Any] = {name: kind(answer[name]) for name, kind in _OPTIONAL.items() if name in answer}
            decision = ExchangeDecision(bool(answer["ready"]), float(answer["lease"]), **options)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._unexpected(answer) from None
        if not (math.isfinite(decision.lease) and decision.lease >= 0):
            raise self._unexpected(answer)
        return Completed(decision)

    def reset(
        self,
        round: int,
        rejoin: bool = False,
        members: Sequence[int] | None = None,
        aside: bool = False,
        exchange: float | None = None,
    ) -> None:
        """Report that this worker begins `round` (see `Coordination.reset`).

        Later questions belong to that round.

        Raises:
            StateServerError: no answer for longer than the patience lasts, or a refusal.
        """
        message: dict[str, Any] = {"rank": self.rank, "round": round}
        if rejoin:
            message["rejoin"] = True
        if members is not None:
            message["present"] = as_text(members)
        if aside:
            message["aside"] = True
        if exchange is not None:
            message["exchange"] = exchange
        self._call(f"{self._path}/reset", message)
        self.round = round

    def report_steps(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """Tell how long steps took (see `Coordination.report_steps`), and wait for the answer.

        Raises:
            StateServerError: no answer for longer than the patience lasts, or a refusal.
        """
        message = {"rank": self.rank, "since": since, "steps": steps, "seconds": seconds}
        answer = self._call(f"{self._path}/steps", message)
        try:
            apart = tuple(int(rank) for rank in answer["apart"])
            return Completed(PolicyDirective(apart, bool(answer["asynchronous"])))
        except (KeyError, TypeError, ValueError):
            raise self._unexpected(answer) from None

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _call(self, path: str, fields: Mapping[str, Any]) -> Any:
        """Return the answer to a call, which is repeated for as long as the patience lasts."""
        waiting = WatchedWait(f"the state server at {self.address}", self._patience)

        def wait(reason: str, pause: float) -> None:
            if waiting.lasted + pause > waiting.limit:
                raise StateServerError(f"gave up on {waiting.what} after {waiting.lasted:.0f} s of {path}: {reason}")
            if waiting.due(config.ANNOUNCE_AFTER):
                log.warning(
                    "rank %d has been waiting %.0f s for %s to answer %s: %s",
                    self.rank, waiting.lasted, waiting.what, path, reason,
                )  # fmt: skip
            if self._http.closed.wait(pause):
                raise StateServerError(f"the connection to the state server at {self.address} has been closed")

        answer = self._http.post(path, fields, wait)
        if not answer.ok:
            raise StateServerError(f"the state server at {self.address} refused {path}: {answer.reason()}")
        try:
            return answer.content()
        except ValueError:
            raise self._unexpected(answer.body) from None

    def _unexpected(self, answer: object) -> StateServerError:
        """Return the error for an answer that no state server gives."""
        return StateServerError(f"{self.address} is not a state server: it answered {str(answer)[:80]}")


def as_text(members: Collection[int]) -> str:
    """Return ranks as a hexadecimal number with one bit for each: "b" for the ranks 0, 1 and 3."""
    return f"{sum(1 << rank for rank in members):x}"


def from_text(text: str) -> list[int]:
    """Return the ranks of such a number, in ascending order.

    Raises:
        ValueError: the text is not a hexadecimal number.
    """
    bits = int(text, 16)
    return [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
