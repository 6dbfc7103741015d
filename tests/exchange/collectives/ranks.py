"""A rank of a real MPI job for test_mpi.py.

`ranks.py CASE` prints what went wrong, if anything did.
"""

import os
import signal
import sys
import time

import numpy as np

from esync.exchange import STATISTICS, WEIGHTS, Payload, Specification
from esync.exchange.collectives import SCHEDULES
from esync.exchange.collectives.engine import CollectiveEngine
from esync.exchange.collectives.mpi import MPITransport
from esync.exchange.collectives.transport import Backoff
from esync.exchange.collectives.worker_exchange import CollectiveExchange
from esync.exchange.protocol.round_state import Limits
from esync.runtime.watchdog import Watchdog, exit_now


class Vector:
    """A source, and a model, of so many values."""

    def __init__(self, size: int) -> None:
        self.values = np.ones(size, np.float32)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        out[:] = self.values[start:stop]

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        self.values[start : start + values.size] = values


def sums(transport: MPITransport) -> None:
    """All collectives, small and large, odd and empty, in both number formats."""
    for name in (*SCHEDULES, "mpi"):
        engine = CollectiveEngine(name, transport)
        for dtype in (np.float16, np.float32):
            for size in (0, 1, 7, 100_003, 3_000_001 if name in ("ring", "mpi") and dtype == np.float32 else 64):
                values = [np.random.default_rng((rank, size)).standard_normal(size) for rank in range(transport.size)]
                result = values[transport.rank].astype(dtype)
                engine.run(result, Backoff(0.001))
                tolerance = 20 * float(np.finfo(dtype).eps)
                expected = np.sum([value.astype(dtype).astype(np.float64) for value in values], axis=0)
                np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
                digests = transport._world.allgather(result.tobytes()[:100_000])
                assert len(set(digests)) == 1, (name, dtype, size)


def exchanges(transport: MPITransport, case: str) -> None:
    """Rounds of a model of 1 MB, in which rank 1 does what the case says."""
    exchange = CollectiveExchange(
        Specification("add_mean_update", True), CollectiveEngine("ring", transport), Watchdog()
    )
    model = Vector(250_000)
    exchange.join({WEIGHTS: 250_000, STATISTICS: 0}, Limits(rounds=3 if case == "work" else 10**9), {})
    exchange.begin({WEIGHTS: model}, model)
    print("begun", flush=True)
    if case == "hang":
        exchange._round_timeout = 3
    result = None
    while result is None or not result.finished:
        if transport.rank == 1 and result is not None:
            if case == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if case == "hang":
                time.sleep(1000)
        result = exchange.start(Payload({WEIGHTS: Vector(250_000)}, 1, 1.0), model).wait()
    assert np.array_equal(model.values, np.full(250_000, 4.0, np.float32))
    exchange.close()


if __name__ == "__main__":
    case = sys.argv[1]
    if case in ("crowded", "uncrowded"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["PMI_RANK"]) if case == "uncrowded" else 0]})
    transport = MPITransport()
    try:
        if case in ("work", "die", "hang"):
            exchanges(transport, case)
        elif case in ("crowded", "uncrowded"):
            assert transport.crowded == (case == "crowded")
            transport.close()
        else:
            sums(transport)
            transport.close()
    except BaseException as error:
        print(f"rank {transport.rank}: {type(error).__name__}: {error}", flush=True)
        exit_now(1)
    print("fine", flush=True)
    exit_now(0)
