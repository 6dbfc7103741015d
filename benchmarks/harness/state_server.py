"""A state server on this machine, and workers' queries of it: undisturbed, and disturbed by others."""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from esync.arguments import count
from esync.coordination.http_client import BufferedConnection

from .program import ROOT, verdict

WORKERS = 101  # the last one is the slowest, busy for a long time: everybody else is NOT-READY
WARM_UP = 300  # queries before those that count
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
TARGET = 2.0  # disturbed ÷ undisturbed, p99


@contextmanager
def state_server() -> Iterator[int]:
    """Run a state server without a job; yield its port."""
    environment = {name: value for name, value in os.environ.items() if name != "ESYNC_TOKEN"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "esync.state_server", "--port", "0", "--state-dir", folder]
        process = subprocess.Popen(
            command, cwd=ROOT, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield int(match[1])
                    return
            raise RuntimeError(f"the state server ended without listening, exit code {process.wait()}")
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


@contextmanager
def running() -> Iterator[int]:
    """Run a state server with a job; yield its port."""
    with state_server() as port:
        begin(port)
        yield port


def begin(port: int) -> None:
    """Begin the default job, whose slowest worker is busy."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for path, fields in (
        ("/init/", {"num_workers": WORKERS, "epsilon": 0.02}),
        ("/apply/", {"r": WORKERS - 1, "k": 0, "c": 1e6, "te": time.time()}),
    ):
        connection.request("POST", path, urlencode(fields), {"Content-Type": FORM})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
    connection.close()


def new_query(rank: int, k: int) -> tuple[str, str, bytes]:
    """Return path, content type and body of a query of the JSON API."""
    asked = {"rank": rank, "round": 1, "iteration": k, "capability": 0.03, "round_trip": 0.0005}
    return "/api/v1/jobs/default/query", JSON, json.dumps(asked).encode()


@dataclass(frozen=True)
class Figure:
    """Figures of queries: milliseconds per query, and queries per second."""

    p50: float
    p99: float
    per_second: float

    @classmethod
    def of(cls, seconds: list[float], whole: float) -> "Figure":
        """Return the figures, given the seconds of all queries and those of the whole."""
        ordered = sorted(seconds)
        p50, p99 = (1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))
        return cls(p50, p99, len(ordered) / whole)

    def __str__(self) -> str:
        return f"p50 {self.p50:7.3f} ms   p99 {self.p99:7.3f} ms   {self.per_second:6.0f} queries/s"


class Worker:
    """A worker's connection, which is kept open all the time."""

    def __init__(self, port: int) -> None:
        self._connection, self._k = BufferedConnection("127.0.0.1", port), 0
        for _ in range(WARM_UP):
            self._ask()

    def ask(self, seconds: float) -> list[float]:
        """Ask for that long; return the seconds of each query."""
        taken, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            self._ask()
            taken.append(time.perf_counter() - start)
        return taken

    def _ask(self) -> None:
        path, kind, body = new_query(0, self._k)
        self._k += 1
        self._connection.request("POST", path, body, {"Content-Type": kind})
        response = self._connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"a worker was answered {response.status}: {text[:200]!r}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compared`."""
    parser.add_argument("--turns", type=count, default=5, help="undisturbed and disturbed (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn (default: %(default)s)")


def compared(
    port: int, disturbance: Callable[[], AbstractContextManager[None]], given: argparse.Namespace
) -> dict[str, Any]:
    """Ask a state server in turns, undisturbed and disturbed; print and return the figures.

    Args:
        port: of the state server.
        disturbance: makes a context in which the queries are disturbed.
        given: options; see `add_arguments`.
    """
    undisturbed: list[float] = []
    disturbed: list[float] = []
    worker = Worker(port)
    for _ in range(given.turns):
        undisturbed += worker.ask(given.seconds)
        with disturbance():
            disturbed += worker.ask(given.seconds)
        worker.ask(0.5)  # while the server takes note of the end
    calm, busy = (Figure.of(times, given.turns * given.seconds) for times in (undisturbed, disturbed))
    ratio = busy.p99 / calm.p99
    print(f"  undisturbed {calm}\n  disturbed   {busy} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    print(f"  p99: {ratio:.2f} times, target {TARGET:g}: {verdict(ratio <= TARGET)}", flush=True)
    return {"undisturbed": asdict(calm), "disturbed": asdict(busy), "p99 ratio": ratio}
