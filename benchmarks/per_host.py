"""What do workers of one host gain by exchanging as one (`per_host: true`)?

    python benchmarks/per_host.py [network] [machine] [--json FILE]

Four workers on two hosts and one server exchange ResNet-18's model updates (44.7 MB), each by
itself ("flat") and the two of each host as one. Two clusters stand side by side, one for each way,
and take turns: one exchange of the one, one of the other. An exchange lasts until the slowest of
its workers has the new model; computing the update and setting the weights are part of it. What
counts is the median of the ratios of the pairs.

network: the hosts are network namespaces of this machine, each at the end of a cable that carries
200 Mbit/s either way (tc's token bucket filter); the server is in a third one, without a limit. It
takes root, iproute2 and sshd.

machine: all on this machine, over loopback, without limits: both hosts are names for it.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import program
from harness.clusters import HERE, Cluster, Machine
from harness.figures import read_figures, write_figures

MEGABITS = 200
#: Section → the target: the time of an exchange per host ÷ that of a flat one.
TARGETS = {"network": 0.6, "machine": 1.0}
#: Host of each worker, by its place.
PLACES = (0, 0, 1, 1)
WARM_UP = 1  # pairs before those that count
RESULTS = program.RESULTS / "per_host.json"


def work(rank: int) -> None:
    """Run a worker: one exchange for each line of standard input, whose figures it prints."""
    import esync
    from esync.algorithms import ESync
    from esync.membership.connections import TrafficMeter
    from esync.models.networks import build
    from esync.runtime.mxnet_import import mx

    net = build("resnet18-v1", 10, mx.cpu(), seed=0)
    algorithm = ESync(1.0, local_iterations=1)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=algorithm)
    trainer.start()
    assert trainer.rank == rank
    meter = TrafficMeter()
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        meter.take()
        begun = time.perf_counter()
        algorithm.aggregate()
        seconds = time.perf_counter() - begun
        sent, received = meter.take()
        print(json.dumps({"seconds": seconds, "sent": sent, "received": received}), flush=True)
    os._exit(0)


@contextlib.contextmanager
def clusters(machines: tuple[Machine, ...], server: Machine) -> Iterator[dict[str, Cluster]]:
    """Have a cluster of each way, ready to exchange, until the end of a with statement.

    Args:
        machines: the two hosts.
        server: where the server and the scheduler are.
    """
    with contextlib.ExitStack() as stack:
        ways = {"flat": 9091, "per_host": 9092}
        found = {
            way: stack.enter_context(Cluster(len(PLACES), machine=server, port=port)) for way, port in ways.items()
        }
        for way, cluster in found.items():
            cluster.start()
            for rank, host in enumerate(PLACES):
                told = {"ESYNC_SLOT": str(rank)}
                if way == "per_host":
                    ranks = [str(other) for other, place in enumerate(PLACES) if place == host]
                    token = f"benchmark-{os.getpid()}-{host}"
                    told |= {"ESYNC_PER_HOST": str(len(ranks)), "ESYNC_HOST_GROUP": f"{token}:{','.join(ranks)}"}
                cluster.start_worker(__file__, "--worker", str(rank), machine=machines[host], **told)
            assert cluster.answers() == ["ready"] * len(PLACES)
        yield found


@contextlib.contextmanager
def hosts(section: str) -> Iterator[tuple[tuple[Machine, ...], Machine]]:
    """Have the machines of the workers and of the server until the end of a with statement."""
    if section == "machine":
        yield (HERE, HERE), HERE
        return
    from namespaces import HOSTS, Machines

    with tempfile.TemporaryDirectory(prefix="per-host-") as folder, Machines(Path(folder) / "network") as network:
        *workers, server = (Machine(network.addresses[name], tuple(network.inside(name))) for name in HOSTS[:3])
        for name in HOSTS[:2]:
            network.limit(name, MEGABITS)
        yield tuple(workers), server


def measure(section: str, pairs: int) -> dict[str, Any]:
    """Measure pairs of exchanges; return their figures."""
    found: list[dict[str, list[dict[str, float]]]] = []
    with hosts(section) as (machines, server), clusters(machines, server) as ways:
        for number in range(WARM_UP + pairs):
            order = list(ways) if number % 2 else list(reversed(ways))
            pair = {way: ways[way].ask("exchange") for way in order}
            if number >= WARM_UP:
                found.append(pair)
                taken = {way: max(each["seconds"] for each in workers) for way, workers in pair.items()}
                print(f"{section}: " + ", ".join(f"{way} {taken[way]:.3f} s" for way in ways), flush=True)
    seconds = {way: [max(each["seconds"] for each in pair[way]) for pair in found] for way in ("flat", "per_host")}
    ratios = [own / flat for own, flat in zip(seconds["per_host"], seconds["flat"], strict=True)]
    ratio = statistics.median(ratios)
    return {
        "seconds": seconds,
        "ratios": ratios,
        "ratio": ratio,
        "target": TARGETS[section],
        "met": ratio <= TARGETS[section],
        "bytes_sent": {way: statistics.median(_total(pair[way], "sent") for pair in found) for way in seconds},
        "bytes_received": {way: statistics.median(_total(pair[way], "received") for pair in found) for way in seconds},
        "load_after": os.getloadavg()[0],
    }


def _total(workers: list[dict[str, float]], name: str) -> float:
    return sum(each[name] for each in workers)


def main() -> int:
    """Measure the sections; return 1 if a target is missed."""
    parser = program.parser(__doc__, RESULTS)
    parser.add_argument("sections", nargs="*", choices=[*TARGETS, []], help="network, machine (default: both)")
    parser.add_argument("--pairs", type=int, default=10, help="pairs that count (default: %(default)s)")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker)
    results = read_figures(options.json)
    for section in options.sections or TARGETS:
        figures = results[section] = measure(section, options.pairs)
        medians = {way: statistics.median(each) for way, each in figures["seconds"].items()}
        print(f"{section}: flat {medians['flat']:.3f} s, per host {medians['per_host']:.3f} s an exchange")
        print(f"  ratio {figures['ratio']:.2f}, at most {figures['target']}: {program.verdict(figures['met'])}")
        write_figures(options.json, results)
    return 0 if all(results[section]["met"] for section in options.sections or TARGETS) else 1


if __name__ == "__main__":
    program.run(main)
