"""What do the collectives cost?

    python benchmarks/collectives.py [real] [simulated] [--json FILE]

real: two processes on this machine, 4 MB to 400 MB. The bare sum by every collective and by MPI's
own allreduce as it is; and whole exchanges (read, sum, rule, write) by every collective, by
--collective auto and by a parameter server. All that takes place without a server takes turns, so
that a busy machine is busy for all of it; the median of the rounds counts. With two ranks the three
own collectives do the same, so they also show how much is chance.

Sizes that FILE has already are not measured again, so that this can be stopped and taken up again.

simulated: 3 to 64 workers, 4 kB to 400 MB, 1 Gbit/s and 0.2 ms, one port each, beside the cost
model's prediction; and what --collective auto would use after its trials, against the best.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
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
from esync.exchange.collectives.autotuner import Autotuner
from esync.exchange.collectives.cost import Costs, predict
from esync.exchange.collectives.engine import CollectiveEngine
from esync.exchange.collectives.transport import Backoff, bucket_bytes

OWN = tuple(SCHEDULES)
SIZES = (4_000_000, 40_000_000, 400_000_000)
ROUNDS = {4_000_000: 100, 40_000_000: 15, 400_000_000: 5}
OF_MPI, OF_BEST = 1.3, 1.2  # targets
GIGABIT = 1e9 / 8 * config.SIMULATE_GOODPUT
LATENCY = 2e-4


# --- real: what each process does -----------------------------------------------------------------


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


def real(sizes: list[int], server_up_to: int, figures: dict[str, Any], written: Callable[[], None]) -> None:
    """Measure everything that the figures lack, and print it."""
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
        written()


# --- simulated ------------------------------------------------------------------------------------


def simulated_collective(name: str, ranks: int, size: int) -> float:
    """Return the seconds of virtual time that a collective takes."""
    from esync.simulate.allreduce import Allreduce
    from esync.simulate.engine import SimulationEngine as VirtualTime
    from esync.simulate.network import Link, Network

    engine = VirtualTime()
    network = Network(engine, lambda host: Link(GIGABIT, LATENCY / 2), [])
    most, done = bucket_bytes(ranks), []
    buckets = [min(most, size - at) // 4 for at in range(0, size, most)]
    hosts = [f"host-{rank}" for rank in range(ranks)]
    reduce = Allreduce(engine, network, hosts, name, buckets, lambda rank: done.append(engine.time))
    for rank in range(ranks):
        reduce.begin(rank, 0.0)
    engine.run()
    return max(done)


def simulated_server(ranks: int, size: int) -> float:
    """Return the same with one parameter server, by the simulator's own exchange."""
    from esync.algorithms.ssgd import SSGD
    from esync.exchange import STATISTICS, WEIGHTS
    from esync.exchange.protocol.round_state import Limits
    from esync.launch import flags
    from esync.simulate.cluster import ClusterModel
    from esync.simulate.coordination import StateServerModel
    from esync.simulate.devices import DeviceModel
    from esync.simulate.network import Link
    from esync.simulate.servers import ServerModel
    from esync.simulate.simulation import Simulation
    from esync.simulate.timing import TimedIteration, TimedTrainer
    from esync.simulate.world import WorkerModel

    class Numerics:
        samples, evaluates, data_digest = 60_000, False, ""
        wire: Mapping[str, int] | None = {WEIGHTS: size // 4, STATISTICS: 0}

        def start(self, rank: int, world: Any) -> Any:
            return TimedTrainer(SSGD(), world, Limits(rounds=2), 1e-3), TimedIteration(lambda: 1)

    workers = tuple(WorkerModel(rank, f"host-{rank}", "gpu0", DeviceModel(1e-3)) for rank in range(ranks))
    cluster = ClusterModel(
        workers, (ServerModel("server"),), StateServerModel("server"), lambda host: Link(GIGABIT, LATENCY / 2), 0.0
    )
    options = flags.parse(["--mode", "sync", "--rounds", "2"])
    simulation = Simulation(cluster, options, Numerics())
    simulation.run()
    return max(sums.transfers / sums.rounds for sums in simulation.workers)


def simulated(ranks: list[int], sizes: list[int]) -> list[dict[str, Any]]:
    """Simulate all cases, print them, and return the figures."""
    costs = Costs(LATENCY + config.SIMULATE_MPI_MESSAGE_TIME, 1 / GIGABIT, config.SIMULATE_ADDING, servers=1)
    rows = []
    for count in ranks:
        for size in sizes:
            taken = {name: simulated_collective(name, count, size) for name in (*OWN, "mpi")}
            predicted = {name: predict(name, count, size, costs) for name in (*OWN, "mpi", "ps")}
            choice = Autotuner({name: predicted[name] for name in taken})
            first = choice.current
            while not choice.settled:
                choice.record(taken[choice.current])
            taken["ps"] = simulated_server(count, size)
            best = min(taken.values())
            row = {
                "workers": count,
                "bytes": size,
                "seconds": taken,
                "predicted": predicted,
                "auto": choice.current,
                "auto_first": first,
                "auto_of_best": taken[choice.current] / best,
                "auto_first_of_best": taken[first] / best,
            }
            rows.append(row)
            times = "  ".join(f"{name} {taken[name]:.4g} ({predicted[name]:.4g})" for name in taken)
            print(
                f"{count:3d} workers {size / 1e6:8g} MB: {times}; auto {choice.current} {row['auto_of_best']:.2f}",
                flush=True,
            )
    return rows


def main() -> None:
    """Measure the chosen parts."""
    parser = program.parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=("real", "simulated", []), help="default: both")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes, of the real ones")
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

        def written() -> None:
            write_figures(options.json, figures)

        parts = options.parts or ["real", "simulated"]
        if "simulated" in parts:
            figures["simulated"] = simulated(
                [3, 6, 8, 13, 16, 32, 64], [4_000, 400_000, 4_000_000, 40_000_000, 400_000_000]
            )
        if "real" in parts:
            real(options.sizes, options.server_up_to, figures.setdefault("real", {}), written)
        written()
    if options.bare or options.whole:
        from esync.runtime.watchdog import exit_now

        exit_now(0)


if __name__ == "__main__":
    program.run(main)
