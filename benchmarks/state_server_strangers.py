"""Do strangers slow a worker's queries down?

    python benchmarks/state_server_strangers.py [--json FILE]

Starts the state server as a process and asks it as one worker does, on a connection that is kept
open, in turns: undisturbed, and while another process holds thousands of connections without ever
completing a request. Those that the server ends are opened again at once, so that their number stays.
Kinds of strangers:

silent     say nothing
trickling  send the headers of a request without end, a few bytes a second

The target is that the p99 of all disturbed queries is at most twice that of all undisturbed ones.
The strangers' own process takes its share of the machine, too: on few cores some of the difference
is its doing.
"""

import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from harness import program
from harness.figures import write_figures
from state_query import WARM_UP, Figure, new_query, running

from esync import config
from esync.coordination.http_client import BufferedConnection

NUMBER = config.STATE_SERVER_CONNECTIONS // 2
TARGET = 2.0  # disturbed ÷ undisturbed, p99
KINDS = ("silent", "trickling")
TRICKLE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"
TRICKLE_EVERY = 1.0  # seconds


class Strangers:
    """Keeps a number of connections open, in a process of its own, until its input ends."""

    def __init__(self, port: int, number: int, kind: str) -> None:
        self._address, self._kind = ("127.0.0.1", port), kind
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)
        self.opened = 0
        for _ in range(number):
            self._open()

    def _open(self) -> None:
        one = socket.create_connection(self._address, timeout=60)
        one.setblocking(False)
        if self._kind == "trickling":
            one.send(TRICKLE)
        self._sockets[one.fileno()] = one
        self._poll.register(one.fileno(), select.EPOLLIN)
        self.opened += 1

    def stay(self) -> None:
        """Stay until the input ends."""
        trickle_at = time.monotonic() + TRICKLE_EVERY
        while True:
            for file, _ in self._poll.poll(0.05):
                if file == sys.stdin.fileno():
                    return
                self._poll.unregister(file)
                self._sockets.pop(file).close()
                self._open()
            if self._kind == "trickling" and time.monotonic() >= trickle_at:
                trickle_at += TRICKLE_EVERY
                for one in list(self._sockets.values()):
                    try:
                        one.send(b"x")
                    except OSError:
                        continue  # ended by the server; epoll tells as well


@contextmanager
def strangers(port: int, number: int, kind: str) -> Iterator[None]:
    """Have strangers connected in the `with` block, all of them from its beginning."""
    command = [sys.executable, __file__, "--be-strangers", str(port), str(number), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "connected\n":
                raise RuntimeError(f"the strangers could not connect, exit code {process.wait()}")
            yield
        finally:
            process.stdin.close()
            process.wait()


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


def measure(kind: str, number: int, turns: int, seconds: float) -> tuple[Figure, Figure]:
    """Return the figures of the undisturbed and of the disturbed queries, measured in turns."""
    undisturbed: list[float] = []
    disturbed: list[float] = []
    with running() as port:
        worker = Worker(port)
        for _ in range(turns):
            undisturbed += worker.ask(seconds)
            with strangers(port, number, kind):
                disturbed += worker.ask(seconds)
            worker.ask(0.5)  # while the server takes note of their end
    return Figure.of(undisturbed, turns * seconds), Figure.of(disturbed, turns * seconds)


def main() -> int:
    """Measure, print and, if asked to, write the figures; return 1 if the target is missed."""
    if sys.argv[1:2] == ["--be-strangers"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        there = Strangers(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
        print("connected", flush=True)
        there.stay()
        return 0
    parser = program.parser(__doc__)
    parser.add_argument("--number", type=int, default=NUMBER, help="of them (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="undisturbed and disturbed (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.number < 1 or arguments.turns < 1 or not 0.1 <= arguments.seconds <= 600:
        parser.error("--number and --turns must be 1 or more, --seconds between 0.1 and 600")
    figures: dict[str, Any] = {}
    load = os.getloadavg()
    for kind in KINDS:
        undisturbed, disturbed = measure(kind, arguments.number, arguments.turns, arguments.seconds)
        ratio = disturbed.p99 / undisturbed.p99
        figures[kind] = {"undisturbed": asdict(undisturbed), "disturbed": asdict(disturbed), "p99 ratio": ratio}
        print(f"{arguments.number} strangers, {kind} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
        print(f"  undisturbed {undisturbed}\n  disturbed   {disturbed}")
        print(f"  p99: {ratio:.2f} times, target {TARGET:g}: {program.verdict(ratio <= TARGET)}")
    content = {
        "load": load,
        "cores": os.cpu_count(),
        "strangers": arguments.number,
        "turns": arguments.turns,
        "seconds": arguments.seconds,
        "target": TARGET,
        "kinds": figures,
    }
    write_figures(arguments.json, content)
    return 0 if all(one["p99 ratio"] <= TARGET for one in figures.values()) else 1


if __name__ == "__main__":
    program.run(main)
