"""Reports of rounds to the state server, for its dashboard; training never waits for them.

A thread sends the reports, at most one in REPORT_INTERVAL seconds. Rounds that end faster, or while
the state server is not reachable, are added up. A report may be sent again; duplicates are ignored.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from .. import config
from ..runtime.logged_values import weighted_mean
from ..runtime.metric import TEST_ACCURACY, Metric
from ..runtime.phase_timer import COMPUTE, GET_BATCH, GLOBAL_AGGREGATE, GLOBAL_UPDATE, LOCAL_UPDATE, LOGGED
from .http_client import HTTPClient

log = logging.getLogger(__name__)

_COMPUTING = (GET_BATCH, COMPUTE, LOCAL_UPDATE)
_EXCHANGING = (GLOBAL_UPDATE, GLOBAL_AGGREGATE)
#: Fields of a report that are added up where it is about several rounds.
_SUMS = ("local_iterations", "samples", "seconds", "compute", "wait", "exchange", "bytes_sent", "bytes_received")


class _TooLateError(Exception):
    """The training has ended, and the time for its last reports is over."""


def _together(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return two reports as one, under the number of the later round."""
    logged = {
        name: weighted_mean((part["logged"].get(name), max(1, part["samples"])) for part in (earlier, later))
        for name in {**earlier["logged"], **later["logged"]}
    }
    return {**later, "logged": logged, **{name: earlier[name] + later[name] for name in _SUMS}}


def shares(phases: Mapping[str, Mapping[str, float]], wait: float) -> dict[str, float]:
    """Return a round's seconds of computing, waiting and exchanging.

    Args:
        phases: of its iterations, as in the log files: iteration → phase → seconds.
        wait: seconds from this worker's commit to the last one's; they are part of the exchange's
            phase.
    """
    compute = sum(phase.get(name, 0.0) for phase in phases.values() for name in _COMPUTING)
    exchange = sum(phase.get(name, 0.0) for phase in phases.values() for name in _EXCHANGING)
    wait = min(max(wait, 0.0), exchange)
    return {"compute": compute, "wait": wait, "exchange": exchange - wait}


class RoundReporter:
    """Sends one worker's reports, in a thread of its own.

    Args:
        host: of the state server.
        port: its port.
        job: the name of the job there.
        rank: of this worker.
        device: its name.
        begin: number of workers, if this worker has to start the job on the state server (in modes
            without coordination); else None.
        ends: whether this worker reports the end of the training.
        metric: of the training's evaluations.
        interval: minimum seconds between two reports.
    """

    def __init__(
        self,
        host: str,
        port: int,
        job: str,
        rank: int,
        device: str,
        begin: int | None = None,
        ends: bool = False,
        metric: Metric = TEST_ACCURACY,
        interval: float = config.REPORT_INTERVAL,
    ) -> None:
        self._address, self._path = f"{host}:{port}", f"/api/v1/jobs/{job}"
        self._http = HTTPClient(host, port, config.REPORT_FAREWELL)
        self._rank, self._device, self._interval, self._ends = rank, device[:200], interval, ends
        self._metric = metric
        self._machine = os.uname().nodename[:200]
        self._begin = {"num_workers": begin, "run": uuid.uuid4().hex} if begin else None
        self._wake = threading.Condition()
        # The body of the next call; rounds that end meanwhile are added to it.
        self._next: dict[str, Any] | None = None
        self._resending = False  # it has been sent before, and only the accuracy in it is new
        self._last: dict[str, Any] | None = None
        self._accuracy: tuple[float | None, int | None] = (None, None)
        self._parts: Mapping[str, float] = {}
        self._reason: str | None = None  # of the end, as soon as it has come
        self._warned = False
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def round(self, number: int, entry: Mapping[str, Any], local_iterations: int, seconds: float) -> None:
        """Report the end of a round.

        Args:
            number: of the round; in asynchronous modes of this worker's exchange.
            entry: the round's entry in the log file.
            local_iterations: of this worker in the round.
            seconds: duration of the round.
        """
        accuracy, accuracy_round = self._accuracy
        report = {
            "rank": self._rank,
            "round": number,
            "device": self._device,
            "host": self._machine,
            "local_iterations": local_iterations,
            "samples": entry["num_samples"],
            "seconds": seconds,
            **shares(entry["time"], entry["wait"]),
            "bytes_sent": entry["bytes_sent"],
            "bytes_received": entry["bytes_received"],
            "accuracy": accuracy,
            "accuracy_round": accuracy_round,
            "parts": self._parts,
            "metric": self._metric.name,
            "goal": self._metric.goal,
            "run_round": entry.get("round"),
            "logged": {name: mean for name, mean in entry.get(LOGGED, {}).items() if mean is not None},
        }
        with self._wake:
            self._next = report if self._next is None or self._resending else _together(self._next, report)
            self._resending = False
            self._wake.notify()

    def accuracy(self, number: int, accuracy: float, parts: Mapping[str, float] | None = None) -> None:
        """Report the accuracy, or other metric, of the weights with which round `number` ended, and its parts.

        A value that the metric cannot have, such as the loss of weights that have diverged, is left
        out.
        """
        if not self._metric.possible(accuracy):
            return
        with self._wake:
            self._accuracy, self._parts = (accuracy, number), parts or {}
            if self._next is None:
                self._next, self._resending = self._last, True
            if self._next is not None:
                self._next = {**self._next, "accuracy": accuracy, "accuracy_round": number, "parts": self._parts}
            self._wake.notify()

    def close(self, reason: str) -> None:
        """Send what is left, as far as REPORT_FAREWELL seconds allow: the training has ended."""
        with self._wake:
            if self._reason is not None:
                return
            self._reason = reason
            self._deadline = time.monotonic() + config.REPORT_FAREWELL
            self._wake.notify()
        self._thread.join(config.REPORT_FAREWELL + 1)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._begin is not None:
            self._send("", self._begin)
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._next is not None or self._reason is not None)
                report, self._next = self._next, None
                if report is not None:
                    self._last, self._resending = report, False
            if report is None:
                break
            self._send("/report", report)
            self._pause(self._interval)
        if self._ends:
            self._send("/end", {"reason": " ".join((self._reason or "").split())[:200]})
        self._http.close()

    def _pause(self, seconds: float) -> None:
        """Wait that long, but not beyond the end of the training."""
        with self._wake:
            self._wake.wait_for(lambda: self._reason is not None, seconds)

    def _send(self, call: str, fields: Mapping[str, Any]) -> None:
        """Send until it has arrived, is refused for good, or comes too late."""
        try:
            answer = self._http.post(self._path + call, fields, self._wait)
        except _TooLateError:
            return
        if answer.ok:
            self._warned = False
        else:
            self._log_trouble(logging.WARNING, f"status {answer.status}: {answer.reason()}")

    def _wait(self, reason: str, pause: float) -> None:
        self._log_trouble(logging.INFO, reason)
        if time.monotonic() + pause > self._deadline:
            raise _TooLateError
        if self._reason is None:
            self._pause(pause)
        else:
            time.sleep(pause)

    def _log_trouble(self, level: int, trouble: str) -> None:
        """Log that reports do not arrive, once until one has."""
        if not self._warned:
            self._warned = True
            log.log(level, "the dashboard lags behind: %s answers a report: %s", self._address, trouble)
