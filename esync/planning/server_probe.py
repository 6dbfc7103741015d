"""Measure the time that a parameter server needs for messages, on the host where it would run.

`python -m esync.planning.server_probe` starts a scheduler and a server on this host, exchanges a
model of the given size with them as a worker does, and reports the times of polls and exchanges.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..exchange import STATISTICS, WEIGHTS, Payload, Specification
from ..exchange.protocol.pending import ReceivedModel
from ..exchange.protocol.round_state import Limits
from ..runtime import program, progress
from ..runtime.processes import tied
from ..runtime.watchdog import Watchdog
from ..world import RealWorld

#: Measured polls; minimum and maximum of measured exchanges; seconds to measure exchanges.
POLLS, MIN_TRANSFERS, MAX_TRANSFERS, SECONDS = 50, 4, 40, 2.0
#: Exchanges and polls before the measured ones.
WARM_UP = 2
#: Seconds that scheduler and server have to start.
START = 60.0


def main(words: list[str] | None = None) -> int:
    """Measure, and report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=int, required=True, help="values that are trained")
    parser.add_argument("--statistics", type=int, default=0, help="values of batch norm's statistics")
    parser.add_argument("--gpu", type=int, help="device that adds up the payloads; the CPU if it is left out")
    options = parser.parse_args(words)
    sizes = {WEIGHTS: options.weights, STATISTICS: options.statistics}
    return program.run("server probe", lambda watchdog: _measure(watchdog, sizes, options.gpu))


def _measure(watchdog: Watchdog, sizes: Mapping[str, int], gpu: int | None) -> int:
    with _cluster(gpu):
        exchange = RealWorld(watchdog=watchdog, start_timeout=START).exchange(Specification("add_mean_update", True))
        model = ReceivedModel(sizes)
        for vector in model.vectors.values():
            vector.values[:] = 0
        exchange.join(sizes, Limits(), {})
        exchange.begin(model.vectors, model)
        polls = []
        for _ in range(WARM_UP + POLLS):
            begun = time.perf_counter()
            exchange.version()
            polls.append(time.perf_counter() - begun)
        transfers: list[float] = []
        begun = time.perf_counter()
        while len(transfers) < WARM_UP + MIN_TRANSFERS or (
            len(transfers) < WARM_UP + MAX_TRANSFERS and time.perf_counter() - begun < SECONDS
        ):
            result = exchange.start(Payload(model.vectors, samples=1, learning_rate=1.0), model)
            transfers.append(result.wait().transfer)
        progress.report_event(
            progress.MEASURED,
            poll=statistics.median(polls[WARM_UP:]),
            transfer=statistics.median(transfers[WARM_UP:]),
        )
        exchange.close()
    return 0


@contextmanager
def _cluster(gpu: int | None) -> Iterator[None]:
    """Run a scheduler and a server, with this process as the worker."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    variables = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_NODE_HOST": "127.0.0.1"}
    variables |= {"DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1"}
    on = [] if gpu is None else ["--gpu", str(gpu)]
    processes = []
    try:
        for role, words in (("scheduler", []), ("server", on)):
            environment = {**os.environ, **variables, "DMLC_ROLE": role}
            environment.pop(progress.VARIABLE, None)  # their reports must not be mixed with this process's
            command = tied([sys.executable, "-m", f"esync.{role}", *words])
            processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        os.environ.update(variables, DMLC_ROLE="worker")
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    program.exit_now(main())
