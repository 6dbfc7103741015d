"""Tells the state server what this worker did in each round, in the background: for people, never for decisions."""

import logging
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from .. import config
from .caller import Caller, StateServerError

logger = logging.getLogger(__name__)


class Reports:
    """Sends reports from a thread of its own, so that the training never waits for them.

    Where the state server is away, the newest config.REPORTS_WAITING of them wait; older ones are lost. A server that
    refuses them gets no more.

    Args:
        host: name or address of the state server.
        port: its port.
        rank: of this worker.
        job: name of the training.
    """

    def __init__(self, host: str, port: int | str, rank: int, job: str = config.JOB) -> None:
        self._path = f"/api/v1/jobs/{job}"
        self._who = f"the reports of rank {rank}"
        self._caller = Caller(host, port, self._who, config.STATE_SERVER_TIMEOUT, config.STATE_SERVER_PATIENCE)
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=config.REPORTS_WAITING)
        self._rank = rank
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def round(self, report: Mapping[str, Any]) -> None:
        """Report a round: the fields of the call, but for the rank. Returns at once."""
        self._send("/report", {"rank": self._rank, **report})

    def end(self, reason: str) -> None:
        """Report that the whole training has ended. Returns at once."""
        self._send("/end", {"reason": reason})

    def close(self) -> None:
        """Send what still waits, as far as that is done in config.REPORTS_FAREWELL seconds."""
        self._closing = True
        self._news.set()
        self._thread.join(config.REPORTS_FAREWELL)
        self._caller.close()

    def _send(self, call: str, fields: Mapping[str, Any]) -> None:
        self._waiting.append((call, fields))
        self._news.set()

    def _run(self) -> None:
        try:
            while True:
                self._news.wait()
                self._news.clear()
                while self._waiting:
                    call, fields = self._waiting.popleft()
                    self._caller.call(self._path + call, fields)
                if self._closing:
                    return
        except StateServerError as error:
            if not self._closing:
                logger.warning("%s end here: %s", self._who, error)


def account(
    round: int,
    entry: Mapping[str, Any],
    seconds: float,
    local_iterations: int,
    phases: tuple[str, ...],
    exchange: tuple[str, ...],
) -> dict[str, Any]:
    """Make a report out of what the log of a round says.

    Args:
        round: its number.
        entry: the log's content.
        seconds: that the round took.
        local_iterations: in this round.
        phases: names of the phases that count as computing.
        exchange: names of the phases that exchange; the wait for the others is taken out of them.
    """
    spent: dict[str, float] = {}
    for iteration in entry["time"].values():
        for name, taken in iteration.items():
            spent[name] = spent.get(name, 0.0) + taken
    wait = entry["wait"]
    return {
        "round": round,
        "local_iterations": local_iterations,
        "samples": entry["num_samples"],
        "seconds": seconds,
        "compute": sum(spent.get(name, 0.0) for name in phases),
        "wait": wait,
        "exchange": max(0.0, sum(spent.get(name, 0.0) for name in exchange) - wait),
        "bytes_sent": entry["bytes_sent"],
        "bytes_received": entry["bytes_received"],
    }
