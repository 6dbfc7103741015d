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
from functools import partial
from typing import Any

from harness import program
from harness.figures import write_figures
from harness.state_server import TARGET, add_arguments, compared, running

from esync import config
from esync.arguments import count

NUMBER = config.STATE_SERVER_CONNECTIONS // 2
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


def main() -> int:
    """Measure, print and, if asked to, write the figures; return 1 if the target is missed."""
    if sys.argv[1:2] == ["--be-strangers"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        connections = Strangers(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
        print("connected", flush=True)
        connections.stay()
        return 0
    parser = program.parser(__doc__)
    parser.add_argument("--number", type=count, default=NUMBER, help="of them (default: %(default)s)")
    add_arguments(parser)
    given = parser.parse_args()
    setting = {"strangers": given.number, "turns": given.turns, "seconds": given.seconds, "target": TARGET}
    machine = {"load": os.getloadavg(), "cores": os.cpu_count()}
    kinds: dict[str, Any] = {}
    for kind in KINDS:
        print(f"{given.number} strangers, {kind}")
        with running() as port:
            kinds[kind] = compared(port, partial(strangers, port, given.number, kind), given)
    write_figures(given.json, {**machine, **setting, "kinds": kinds})
    return 0 if all(one["p99 ratio"] <= TARGET for one in kinds.values()) else 1


if __name__ == "__main__":
    program.run(main)
