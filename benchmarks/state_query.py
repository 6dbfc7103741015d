"""How long does a worker wait for the state server's answer? `python benchmarks/state_query.py [--json FILE]`.

Starts the state server as a process on a fresh port of this machine and times the questions of one worker on its one
kept-open connection, with the client that workers use. Django's own runserver answers the same beside it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esync.coordination.client import StateServerClient

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 200  # questions before those that count
TARGET = 0.6  # milliseconds, p50
SERVERS = {
    "python -m esync.state_server": ["-m", "esync.state_server", "--port", "0"],
    "Django's runserver": ["SimpleStateServer/manage.py", "runserver", "127.0.0.1:0", "--noreload"],
}


@contextmanager
def running(command: list[str]) -> Iterator[int]:
    """Run a server; the value is the port that it printed."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                yield int(found[1])
                return
        raise RuntimeError(f"{' '.join(command)} ended without listening, exit code {process.wait()}")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def measure(port: int, queries: int) -> dict[str, float]:
    """Return p50 and p99 in milliseconds over `queries` questions of rank 0, one of four workers."""
    for rank in range(1, 4):
        with StateServerClient("127.0.0.1", port, rank=rank) as other:
            if rank == 1:
                other.init(num_workers=4, epsilon=0.02)
            other.ask(0, capability=1e6)  # busy for a long time: the answers are NOT-READY
    seconds = []
    with StateServerClient("127.0.0.1", port, rank=0) as worker:
        for k in range(WARM_UP + queries):
            start = time.perf_counter()
            ready = worker.ask(k, capability=0.03).wait()
            seconds.append(time.perf_counter() - start)
            assert not ready
    counted = sorted(seconds[WARM_UP:])
    return {
        "p50_ms": 1e3 * counted[len(counted) // 2],
        "p99_ms": 1e3 * counted[min(len(counted) - 1, int(0.99 * len(counted)))],
    }


def main() -> int:
    """Measure both servers, print and, if asked to, write the figures. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Time of one question to the state server.")
    parser.add_argument("--queries", type=int, default=400, help="questions that count (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    if arguments.queries < 1:
        parser.error("--queries must be 1 or more")

    figures = {}
    print(f"{arguments.queries} questions on one connection, milliseconds:")
    for name, command in SERVERS.items():
        with running(command) as port:
            figures[name] = measure(port, arguments.queries)
        print(f"  {name:30} p50 {figures[name]['p50_ms']:.3f}   p99 {figures[name]['p99_ms']:.3f}")
    met = next(iter(figures.values()))["p50_ms"] <= TARGET
    print(f"target: p50 <= {TARGET} ms: {'met' if met else 'MISSED'}")
    if arguments.json:
        content = {"queries": arguments.queries, "target_p50_ms": TARGET, "met": met, "servers": figures}
        unfinished = arguments.json.with_name(arguments.json.name + ".tmp")
        unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        unfinished.replace(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
