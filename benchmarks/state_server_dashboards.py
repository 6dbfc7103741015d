"""Do dashboards and a long report slow a worker's queries down?

    python benchmarks/state_server_dashboards.py [--json FILE]

Starts the state server as a process and asks it as one worker does, on a connection that is kept
open, in turns: undisturbed, and while another process asks for what ten dashboards show, each once
a second, and for one long report after the other. The target is that the p99 of all disturbed
queries is at most twice that of all undisturbed ones. The dashboards' own process takes its share
of the machine, too.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from harness import program
from harness.figures import write_figures
from harness.state_server import JSON, TARGET, add_arguments, compared, running

DASHBOARDS = 10
ROUNDS = 5000  # in the history
JOB = "/api/v1/jobs/default"
SHOWN = (JOB, f"{JOB}/curves", f"{JOB}/events", f"{JOB}/rounds?newest=200", "/api/v1/jobs")


def get(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def fill(port: int, rounds: int) -> str:
    """Report that many rounds, wait until they are in the history, and return the run's id."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for number in range(rounds):
        report = {
            "rank": number % 10, "round": number // 10 + 1, "device": "cpu", "host": "a", "local_iterations": 1,
            "samples": 64, "seconds": 1.0, "compute": 0.8, "wait": 0.1, "exchange": 0.1, "bytes_sent": 1,
            "bytes_received": 1, "accuracy": 0.5, "accuracy_round": number // 10 + 1,
        }  # fmt: skip
        connection.request("POST", f"{JOB}/report", json.dumps(report), {"Content-Type": JSON})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    while True:
        run = json.loads(get(port, "/api/v1/runs")[1])["runs"][0]
        if run["samples"] >= 64 * rounds:
            return str(run["id"])
        time.sleep(0.1)


def be_dashboards(port: int, run: str) -> None:
    """Ask until the input ends; print how many answers had which status."""
    over, statuses = threading.Event(), Counter[int]()

    def look() -> None:
        while not over.wait(1.0):
            for path in SHOWN:
                statuses[get(port, path)[0]] += 1

    def read_reports() -> None:
        while not over.is_set():
            statuses[get(port, f"/api/v1/report?runs={run}")[0]] += 1

    threads = [threading.Thread(target=look) for _ in range(DASHBOARDS)]
    for thread in [*threads, threading.Thread(target=read_reports)]:
        thread.start()
    sys.stdin.read()
    over.set()
    print(json.dumps(statuses))


@contextmanager
def dashboards(port: int, run: str, statuses: Counter[str]) -> Iterator[None]:
    """Have dashboards and a reader of reports ask in the `with` block; count the answers' statuses."""
    command = [sys.executable, __file__, "--be-dashboards", str(port), run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(1.0)
        yield
        statuses.update(json.loads(process.communicate()[0]))


def main() -> int:
    """Measure, print and, if asked to, write the figures; return 1 if the target is missed."""
    if sys.argv[1:2] == ["--be-dashboards"]:
        be_dashboards(int(sys.argv[2]), sys.argv[3])
        return 0
    parser = program.parser(__doc__)
    add_arguments(parser)
    given = parser.parse_args()
    figures, statuses = {"load": os.getloadavg(), "cores": os.cpu_count(), "target": TARGET}, Counter[str]()
    print(f"{DASHBOARDS} dashboards and a report")
    with running() as port:
        comparison = compared(port, partial(dashboards, port, fill(port, ROUNDS), statuses), given)
    print(f"  their answers by status: {dict(statuses)}")
    write_figures(given.json, {**figures, **comparison, "statuses": dict(statuses)})
    return 0 if comparison["p99 ratio"] <= TARGET else 1


if __name__ == "__main__":
    program.run(main)
