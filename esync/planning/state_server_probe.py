"""Measure the time that a state server needs for an answer, on the host where it would run.

`python -m esync.planning.state_server_probe` starts a state server on this host, queries it as a
worker does, and reports the median time of its answers.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..coordination import JobSettings
from ..coordination.client import StateServerClient
from ..runtime import program, progress
from ..runtime.errors import ExpectedError
from ..runtime.processes import tied
from ..runtime.watchdog import Watchdog

#: Measured queries, and queries before them.
QUESTIONS, WARM_UP = 60, 10
_LISTENS = re.compile(r"http://127\.0\.0\.1:(\d+)")
#: Seconds per iteration of a slow worker, so long that the answer to another one is NOT-READY.
_BUSY = 1e6


def main() -> int:
    """Measure, and report; return the exit code."""
    return program.run("state server probe", _measure)


def _measure(watchdog: Watchdog) -> int:
    with state_server() as port:
        slowest, worker = (StateServerClient("127.0.0.1", port, rank=rank, job="measurement") for rank in (0, 1))
        with slowest, worker:
            slowest.init(JobSettings(2, None))
            for client in (slowest, worker):
                client.reset(1)
            slowest.ask(0, _BUSY)
            durations = []
            for number in range(WARM_UP + QUESTIONS):
                begun = time.perf_counter()
                worker.ask(number, 1.0)
                durations.append(time.perf_counter() - begun)
        progress.report_event(progress.MEASURED, answer_time=statistics.median(durations[WARM_UP:]))
    return 0


@contextmanager
def state_server() -> Iterator[int]:
    """Run a state server that only this host reaches; yield its port."""
    with tempfile.TemporaryDirectory(prefix="esync-plan-") as folder:
        words = ["--host", "127.0.0.1", "--port", "0", "--state-dir", folder]
        process = subprocess.Popen(
            tied([sys.executable, "-m", "esync.state_server", *words]),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        last = ""
        try:
            for line in process.stdout:
                if match := _LISTENS.search(line):
                    yield int(match[1])
                    return
                last = line.strip() or last
            raise ExpectedError(f"the state server does not start: {last}")
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
