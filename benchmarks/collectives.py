"""What do the collectives cost?

    python benchmarks/collectives.py [--json FILE]

Two processes on this machine, 4 MB to 400 MB. The bare sum by every collective and by MPI's own
allreduce as it is; and whole exchanges (read, sum, rule, write) by every collective, by
--collective auto and by a parameter server. All that takes place without a server takes turns, so
that a busy machine is busy for all of it; the median of the rounds counts. With two ranks the three
own collectives do the same, so they also show how much is chance.

Sizes that FILE has already are not measured again, so that this can be stopped and taken up again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.clusters import Cluster
from harness.exchanges import Vector
from harness.figures import read_figures, write_figures
from harness.timing import in_turns, medians, seconds_of

from esync import config
from esync.exchange.collectives import SCHEDULES
from esync.exchange.collectives.engine import CollectiveEngine
from esync.exchange.collectives.transport import Backoff

OWN = tuple(SCHEDULES)
SIZES = (4_000_000, 40_000_000, 400_000_000)
ROUNDS = {4_000_000: 100, 40_000_000: 15, 400_000_000: 5}
OF_MPI, OF_BEST = 1.3, 1.2  # targets


def bare(size: int) -> None:
    """Run a rank; on rank 0, print the seconds of every sum by every collective as JSON."""
    from esync.exchange.collectives.mpi import MPITransport

    transport = MPITransport()
    world, mpi = transport._world, transport._mpi
    values = np.zeros(size // 4, np.float32)
    other = np.empty_like(values)

    def sums(engine: CollectiveEngine) -> Callable[[], None]:
        return lambda: engine.run(values, Backoff(config.COLLECTIVE_PAUSE))

    ways = {name: sums(CollectiveEngine(name, transport)) for name in (*OWN, "mpi")}
    ways["MPI_Allreduce"] = lambda: world.Allreduce(values, other)
    ways["MPI_Allreduce in place"] = lambda: world.Allreduce(mpi.IN_PLACE, values)

    def slowest(way: Callable[[], None]) -> float:
        world.Barrier()
        return float(world.allreduce(seconds_of(way), mpi.MAX))

    seconds = in_turns({name: partial(slowest, way) for name, way in ways.items()}, ROUNDS[size], warm_up=1)
    if transport.rank == 0:
        print(json.dumps(seconds), flush=True)
    transport.close()


def whole(names: list[str], size: int) -> None:
    """Run a worker; on rank 0, print the seconds of every exchange as JSON.

    The collectives `names` take turns.
    """
    from esync.exchange import STATISTICS, WEIGHTS, Payload, Specification
    from esync.exchange.protocol.round_state import Limits
    from esync.runtime.watchdog import Watchdog

    specification, watchdog = Specification("add_mean_update", True), Watchdog()
    exchanges: dict[str, Any] = {}
    for name in names:
        if name == "ps":
            from esync.exchange.keystores.mxnet_store import MXNetStore
            from esync.exchange.protocol.client import ParameterServerExchange
            from esync.runtime.environment import Cluster

            exchanges[name] = ParameterServerExchange(specification, MXNetStore(Cluster.from_environment(), watchdog))
        else:
            from esync.exchange.collectives.worker_exchange import over_mpi

            exchanges[name] = over_mpi(specification, name, watchdog)
    # The trials of auto are over then, if it tries all of them.
    warm_up = config.COLLECTIVE_TRIALS * (len(OWN) + 1) if "auto" in names else 2
    values = np.ones(size // 4, np.float32)
    model, payload = Vector(values.copy()), Payload({WEIGHTS: Vector(values)}, 1, 1.0)
    for exchange in exchanges.values():
        exchange.join({WEIGHTS: size // 4, STATISTICS: 0}, Limits(rounds=ROUNDS[size] + warm_up), {})
        exchange.begin({WEIGHTS: model, STATISTICS: model}, model)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS[size] + warm_up):
        for name, exchange in exchanges.items():
            # Less what this one has waited for the other.
            seconds[name].append(exchange.start(payload, model).wait().transfer)
    *others, last = exchanges.values()
    for exchange in others:
        exchange.engine.close = lambda: None  # MPI is left once
        exchange.close()
    last.close()
    if last.rank == 0:
        print(json.dumps({name: times[warm_up:] for name, times in seconds.items()}), flush=True)


def run_ranks(words: list[str]) -> Any:
    """Run two ranks under mpiexec; return what rank 0 has printed."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", "2", sys.executable, __file__, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


def run_servers(size: int) -> Any:
    """Return the same for exchanges with a scheduler, a parameter server and two workers."""
    with Cluster(2) as cluster:
        cluster.start(*[(__file__, "--whole", "ps", "--size", str(size))] * 2)
        return next(output["ps"] for output in cluster.results() if output)


def measure(sizes: list[int], server_up_to: int, known: dict[str, Any], path: Path | None) -> None:
    """Measure the sizes that a file's figures lack; print and write them."""
    figures = known.setdefault("real", {})
    for size in sizes:
        if str(size) in figures:
            continue
        sums = medians(run_ranks(["--bare", "--size", str(size)]))
        best = min(seconds for name, seconds in sums.items() if "mpi" in name.lower())
        exchanges = medians(run_ranks(["--whole", *OWN, "mpi", "auto", "--size", str(size)]))
        if size <= server_up_to:
            exchanges["ps"] = statistics.median(run_servers(size))
        ratio = exchanges["auto"] / min(exchanges.values())
        figures[str(size)] = {"sums": sums, "exchanges": exchanges, "auto_of_best": ratio}
        print(f"{size / 1e6:g} MB, 2 ranks on this machine; bare sums:")
        for name, seconds in sums.items():
            of_mpi = f"  {seconds / best:.2f} x MPI's best (target {OF_MPI})" if name in OWN else ""
            print(f"  {name:24s} {1e3 * seconds:9.2f} ms{of_mpi}")
        print("whole exchanges:")
        for name, seconds in exchanges.items():
            print(f"  {name:24s} {1e3 * seconds:9.2f} ms")
        print(f"  auto: {ratio:.2f} x the best (target {OF_BEST})", flush=True)
        write_figures(path, known)


def main() -> None:
    """Measure what is missing."""
    parser = program.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--server-up-to", type=int, default=SIZES[-1], help="bytes of the largest model with a server")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--whole", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare(options.size)
    elif options.whole:
        whole(options.whole, options.size)
    else:
        figures = {"command": program.command(), **read_figures(options.json)}
        measure(options.sizes, options.server_up_to, figures, options.json)
    if options.bare or options.whole:
        from esync.runtime.watchdog import exit_now

        exit_now(0)


if __name__ == "__main__":
    program.run(main)
