"""How fast does the state server answer?

    python benchmarks/state_query.py [--seconds 4] [--json FILE]

Starts the state server as a process on a fresh port of this machine and asks it as workers do, on
connections that are kept open: first with the HTTP client of a worker, whose own time is in the
figures; then 1, 10 and 100 callers at once, each of which asks again as soon as it is answered,
from one other process. The published call, which asks the same with a form, stands beside the JSON
API's. On a machine that does other things, too, compare the two; the load is printed.
"""

import asyncio
import http.client
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

from harness import program
from harness.figures import write_figures

from esync.coordination.http_client import BufferedConnection
from esync.planning.state_server_probe import state_server

WORKERS = 101  # the last one is the slowest, busy for a long time: everybody else is NOT-READY
WARM_UP = 300  # queries before those that count
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
CALLERS = (1, 10, 100)
TARGETS = {"p50 of one query": 0.4, "queries per second": 2500.0, "p99 of 100 callers": 50.0}


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


def new_query(rank: int, k: int) -> tuple[str, str, bytes]:
    """Return path, content type and body of a query of the JSON API."""
    asked = {"rank": rank, "round": 1, "iteration": k, "capability": 0.03, "round_trip": 0.0005}
    return "/api/v1/jobs/default/query", JSON, json.dumps(asked).encode()


def published_query(rank: int, k: int) -> tuple[str, str, bytes]:
    """Return the same for a query of the published API."""
    return "/apply/", FORM, urlencode({"r": rank, "k": k, "c": 0.03, "te": time.time()}).encode()


Query = Callable[[int, int], tuple[str, str, bytes]]
QUERIES: dict[str, Query] = {"query of the JSON API": new_query, "published call": published_query}


def one_worker(port: int, query: Query, seconds: float) -> Figure:
    """Ask as a worker does, on one connection; return the figures."""
    connection = BufferedConnection("127.0.0.1", port)
    taken: list[float] = []
    k, begun = 0, 0.0
    while k <= WARM_UP or time.perf_counter() - begun < seconds:
        path, kind, body = query(0, k)
        start = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": kind})
        answer = json.loads(connection.getresponse().read())
        end = time.perf_counter()
        assert not answer["ready"]
        if k == WARM_UP:
            taken, begun = [], end
        taken.append(end - start)
        k += 1
    connection.close()
    return Figure.of(taken, end - begun)


class Caller(asyncio.Protocol):
    """One of many callers, which asks again as soon as it is answered."""

    def __init__(self, rank: int, query: Query) -> None:
        self.taken: list[float] = []
        self._rank, self._query = rank, query
        self._k, self._answer = 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Take an answer, and ask again."""
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if not end or length is None or len(body) < int(length[1]):
            return
        assert head.startswith(b"HTTP/1.1 200"), self._answer
        self.taken.append(time.perf_counter() - self._asked)
        self._answer = b""
        self._ask()

    def _ask(self) -> None:
        path, kind, body = self._query(self._rank, self._k)
        self._k += 1
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._asked = time.perf_counter()
        self._transport.write(head.encode() + body)

    def stop(self) -> None:
        """Stop asking."""
        self._transport.abort()


async def many(port: int, callers: int, query: Query, seconds: float) -> Figure:
    """Ask with many callers at once; return the figures."""
    loop = asyncio.get_running_loop()
    all_callers = [
        (await loop.create_connection(lambda rank=rank: Caller(rank, query), "127.0.0.1", port))[1]
        for rank in range(callers)
    ]
    await asyncio.sleep(0.5)
    for caller in all_callers:
        caller.taken.clear()
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    whole = time.perf_counter() - begun
    for caller in all_callers:
        caller.stop()
    return Figure.of([taken for caller in all_callers for taken in caller.taken], whole)


def measure(query: Query, seconds: float) -> dict[str, Figure]:
    """Return the figures of one query, by the kind of caller."""
    figures = {}
    with running() as port:
        figures["one worker"] = one_worker(port, query, seconds)
    for callers in CALLERS:
        with running() as port:
            figures[f"{callers} caller{'s' if callers > 1 else ''}"] = asyncio.run(many(port, callers, query, seconds))
    return figures


def main() -> int:
    """Measure both queries, print and, if asked to, write the figures; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default: %(default)s)")
    arguments = parser.parse_args()
    if not 0.1 <= arguments.seconds <= 600:
        parser.error("--seconds must lie between 0.1 and 600")

    figures: dict[str, dict[str, Figure]] = {}
    for name, query in QUERIES.items():
        print(f"{name} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
        figures[name] = measure(query, arguments.seconds)
        for kind, figure in figures[name].items():
            print(f"  {kind:12} {figure}")
    new, published = figures.values()
    for kind in new:
        ratio = new[kind].per_second / published[kind].per_second
        print(f"{kind:12}  {ratio:.2f} times as many queries per second as published calls")
    reached = {
        "p50 of one query": new["1 caller"].p50,
        "queries per second": max(figure.per_second for figure in new.values()),
        "p99 of 100 callers": new["100 callers"].p99,
    }
    met = {
        name: value >= TARGETS[name] if name == "queries per second" else value <= TARGETS[name]
        for name, value in reached.items()
    }
    for name, value in reached.items():
        print(f"{name}: {value:.3g}, target {TARGETS[name]:g}: {program.verdict(met[name])}")
    shown = {name: {kind: asdict(figure) for kind, figure in one.items()} for name, one in figures.items()}
    content = {"load": os.getloadavg(), "cores": os.cpu_count(), "targets": TARGETS, "met": met, "queries": shown}
    write_figures(arguments.json, content)
    return 0


if __name__ == "__main__":
    program.run(main)
