"""How much computing time do many workers lose to one state server?

    python benchmarks/many_workers.py [--json FILE]

999 fast workers (0.03 s an iteration) and a slow one (3.5 s) ask a real state server over real
HTTP, each on a connection of its own. Their iterations are waited for, not computed, and an
exchange is modelled: when all are READY, the new model reaches one after the other, within
--exchange seconds. The questions are asked three ways: after every iteration, as published workers
do; with leases; with leases and without waiting for the answers (delayed ACK).

Lost is the share of the fast workers' time between RESET and READY that does not belong to an
iteration that counts: they wait for an answer, or (delayed ACK) give an iteration up.
"""

import argparse
import asyncio
import json
import math
import re
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from harness import program
from harness.figures import write_figures

from esync.planning.state_server_probe import state_server

TARGET = 0.02  # of the computing time, with leases
LIMIT = 600.0  # seconds for one mode
MODES = ("without leases", "leases", "leases, delayed ACK")


class Connection(asyncio.Protocol):
    """A kept-open HTTP connection with as little work as possible.

    The answers are short and all have one form.
    """

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Complete the call when its answer is complete."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end:
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            if len(body) >= length and self._answer is not None:
                self._received = b""
                if not self._answer.done():
                    self._answer.set_result(head[:12] + b" " + body)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the call in progress."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the state server has closed the connection"))

    async def post(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Make a call; there must be only one at a time."""
        body = json.dumps(fields).encode()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = await self._answer
        if answer[9:12] != b"200":
            raise RuntimeError(answer.decode())
        content: dict[str, Any] = json.loads(answer[13:])
        return content


@dataclass
class Figures:
    """What the fast workers have observed in the rounds that count."""

    queries: list[float] = field(default_factory=list)  # seconds that each took
    resets: list[float] = field(default_factory=list)  # the same for RESET
    busy: float = 0.0  # seconds from the answer to RESET to READY, all of them together
    computed: float = 0.0  # seconds of it that belong to iterations that count
    iterations: int = 0


class Exchange:
    """A model of an exchange: when all workers are READY, the model reaches one after the other."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._workers, self._seconds = workers, seconds
        self._arrived = 0
        self._over = asyncio.Event()

    async def join(self, rank: int) -> None:
        """Wait for all the others, then for this worker's turn."""
        self._arrived += 1
        over = self._over
        if self._arrived == self._workers:
            self._arrived, self._over = 0, asyncio.Event()
            over.set()
        await over.wait()
        await asyncio.sleep(self._seconds * rank / self._workers)


class Worker:
    """A worker that iterates, asks and exchanges.

    It asks, and uses the answers, in the same way as `esync.algorithms.ESync`.
    """

    def __init__(self, rank: int, speed: float, job: str, mode: str, exchange: Exchange, figures: Figures) -> None:
        self._rank, self._speed, self._exchange, self._figures = rank, speed, exchange, figures
        self._leases, self._delayed = mode != MODES[0], mode == MODES[2]
        self._path = f"/api/v1/jobs/{job}"
        self._round_trip: float | None = None
        self._reset: asyncio.Task[None] | None = None

    async def run(self, port: int, rounds: int, warm_up: int) -> None:
        """Take part in `warm_up` rounds that do not count, and `rounds` that do."""
        _, self._connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
        await self._ask(1, 0)
        await self._exchange.join(self._rank)  # all have told their speeds before the first begins
        for round in range(1, 1 + warm_up + rounds):
            figures = self._figures if round > warm_up else Figures()
            if round > 1:
                self._reset = asyncio.create_task(self._begin(round, figures))
                if not self._delayed:
                    await self._reset
            begun = time.monotonic()
            await self._iterate(round, figures)
            figures.busy += time.monotonic() - begun
            await self._exchange.join(self._rank)

    async def _begin(self, round: int, figures: Figures) -> None:
        """Send RESET. With delayed ACK it is not waited for, but no query overtakes it."""
        begun = time.monotonic()
        await self._connection.post(f"{self._path}/reset", {"rank": self._rank, "round": round})
        figures.resets.append(time.monotonic() - begun)

    async def _iterate(self, round: int, figures: Figures) -> None:
        """Do one round until READY."""
        done, free_until = 0, 0.0
        question: asyncio.Task[tuple[bool, float]] | None = None
        while True:
            begun = time.monotonic()
            # What is done during a lease is waited for in one go, so that this program has little
            # to do itself.
            count = 1 if question else max(1, math.ceil((free_until - begun) / self._speed))
            if question is None:
                await asyncio.sleep(count * self._speed)
            elif (await asyncio.wait([question], timeout=self._speed))[0]:
                ready, free_until = question.result()
                question = None
                if ready:
                    return  # the iteration in flight is given up
                await asyncio.sleep(begun + self._speed - time.monotonic())
            done += count
            figures.iterations += count
            figures.computed += time.monotonic() - begun
            if question is None and time.monotonic() >= free_until:
                if self._delayed:
                    question = asyncio.create_task(self._ask(round, done, figures))
                else:
                    ready, free_until = await self._ask(round, done, figures)
                    if ready:
                        return

    async def _ask(self, round: int, iteration: int, figures: Figures | None = None) -> tuple[bool, float]:
        """Return whether the worker is READY, and until when it need not ask."""
        if self._reset is not None:
            await self._reset
        begun = time.monotonic()
        asked = {"rank": self._rank, "round": round, "iteration": iteration, "capability": self._speed}
        if self._round_trip is not None:
            asked["round_trip"] = self._round_trip
        answer = await self._connection.post(f"{self._path}/query", asked)
        self._round_trip = time.monotonic() - begun
        if figures is not None:
            figures.queries.append(self._round_trip)
        return answer["ready"], begun + answer["lease"] if self._leases else 0.0


async def play(port: int, mode: str, options: argparse.Namespace) -> dict[str, float]:
    """Run one job in one mode; return the figures."""
    workers = options.workers + 1
    job = f"mode-{MODES.index(mode)}"
    _, first = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    await first.post(f"/api/v1/jobs/{job}", {"num_workers": workers, "epsilon": None})
    exchange, figures, slow = Exchange(workers, options.exchange), Figures(), Figures()
    # The slowest is in the middle of those that the model reaches.
    speeds = [options.fast] * options.workers
    speeds.insert(options.workers // 2, options.slow)
    begun = time.monotonic()
    everybody = [
        Worker(rank, speed, job, mode, exchange, slow if speed == options.slow else figures).run(
            port, options.rounds, options.warm_up
        )
        for rank, speed in enumerate(speeds)
    ]
    await asyncio.wait_for(asyncio.gather(*everybody), LIMIT)
    counted = len(figures.queries)
    ordered = sorted(figures.queries)
    rounds = options.workers * options.rounds
    return {
        "lost": 1 - figures.computed / figures.busy,
        "queries_per_round": counted / rounds,
        "iterations_per_round": figures.iterations / rounds,
        "p50_ms": 1e3 * ordered[counted // 2],
        "p99_ms": 1e3 * ordered[int(0.99 * counted)],
        "max_ms": 1e3 * ordered[-1],
        "reset_mean_ms": 1e3 * sum(figures.resets) / len(figures.resets),
        "slow_worker_wait_ms": 1e3 * sum(slow.queries) / options.rounds,
        "seconds": time.monotonic() - begun,
        "queries": counted,
    }


def main() -> int:
    """Measure, print and, if asked to, write the figures; return the exit code."""
    parser = program.parser(__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=999, help="fast workers (default: %(default)s)")
    add("--fast", type=float, default=0.03, help="seconds of their iterations (default: %(default)s)")
    add("--slow", type=float, default=3.5, help="seconds of the slow worker's (default: %(default)s)")
    add("--exchange", type=float, default=1.0, help="seconds in which the model reaches all (default: %(default)s)")
    add("--rounds", type=int, default=5, help="that count (default: %(default)s)")
    add("--warm-up", type=int, default=20, help="rounds before them: leases need to know the slow worker's jitter")
    add("--modes", nargs="+", choices=MODES, default=MODES)
    options = parser.parse_args()

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    figures = {}
    print(f"{options.workers} workers of {options.fast} s an iteration, one of {options.slow} s:")
    with state_server() as port:
        for mode in options.modes:
            figures[mode] = one = asyncio.run(play(port, mode, options))
            print(
                f"  {mode:20} lost {one['lost']:6.1%}   queries a round {one['queries_per_round']:6.1f}   "
                f"iterations {one['iterations_per_round']:6.1f}   p50 {one['p50_ms']:.1f} ms   "
                f"p99 {one['p99_ms']:.1f} ms   RESET {one['reset_mean_ms']:.1f} ms   "
                f"READY of the slow one {one['slow_worker_wait_ms']:.1f} ms",
                flush=True,
            )
    met = all(one["lost"] <= TARGET for mode, one in figures.items() if mode != MODES[0])
    print(f"target: no error, lost with leases <= {TARGET:.0%}: {program.verdict(met)}")
    content = {"command": program.command(), "target_lost": TARGET, "met": met, "modes": figures}
    write_figures(options.json, content)
    return 0


if __name__ == "__main__":
    program.run(main)
