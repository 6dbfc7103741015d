"""What does one exchange of a model cost? `python benchmarks/exchange.py [--json FILE]`.

Three workers and one server on this machine exchange ResNet-18's model updates: as the published implementation does
(push, pull, wait, key by key), with stock dist_sync at its best (all pushes first, then all pulls), and with this
project's exchange. All three compute the update Δ from their weights and set the new weights, which is part of the
time. The ways take turns, so that a busy machine is busy for all of them; what counts is the ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import clusters, program
from harness.figures import write_figures

from esync.runtime.mxnet_import import mx

WORKERS = 3
TARGET = 0.65  # of the time that the published way takes
WARM_UP = 3  # rounds before those that count
GLOBAL_LR = 1.0


def published(net: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """Push → pull → wait for one parameter after the other, on MXNet's own dist_sync server."""
    kvstore = mx.kv.create("dist_sync")
    parameters = list(net.collect_params().values())
    before = []
    for key, parameter in enumerate(parameters):
        kvstore.init(key, parameter.data().copy())
        before.append(parameter.data().copy())
    mx.nd.waitall()

    def exchange() -> None:
        for key, parameter in enumerate(parameters):
            kvstore.push(key, parameter.data() - before[key], priority=-key)
            total = mx.nd.zeros(parameter.shape)
            kvstore.pull(key, total, priority=-key)
            total.wait_to_read()
            parameter.set_data(before[key] + GLOBAL_LR * (total / kvstore.num_workers))
            before[key] = parameter.data().copy()
        mx.nd.waitall()

    return exchange, kvstore._barrier


def dist_sync(net: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """All pushes, then all pulls, on MXNet's own dist_sync server."""
    kvstore = mx.kv.create("dist_sync")
    parameters = list(net.collect_params().values())
    before = []
    for key, parameter in enumerate(parameters):
        kvstore.init(key, parameter.data().copy())
        before.append(parameter.data().copy())
    mx.nd.waitall()

    def exchange() -> None:
        totals = []
        for key, parameter in enumerate(parameters):
            kvstore.push(key, parameter.data() - before[key], priority=-key)
        for key, parameter in enumerate(parameters):
            totals.append(mx.nd.empty(parameter.shape))
            kvstore.pull(key, totals[key], priority=-key)
        for key, parameter in enumerate(parameters):
            parameter.set_data(before[key] + GLOBAL_LR * (totals[key] / kvstore.num_workers))
            before[key] = parameter.data().copy()
        mx.nd.waitall()

    return exchange, kvstore._barrier


def ours(net: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """ESync's exchange of this project."""
    import esync
    from esync.algorithms import ESync

    algorithm = ESync(GLOBAL_LR, local_iterations=1)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=algorithm)
    trainer.start()
    return algorithm.aggregate, trainer.algorithm.exchange.store.store._barrier


WAYS = {"published, key by key": published, "stock dist_sync": dist_sync, "esync": ours}


def work(way: str, rounds: int) -> None:
    """One worker: prints the seconds of every round that counts, as JSON."""
    from esync.models.networks import build

    net = build("resnet18-v1", 10, mx.cpu(), seed=0)
    exchange, barrier = WAYS[way](net)
    seconds = []
    for _ in range(WARM_UP + rounds):
        barrier()
        start = time.perf_counter()
        exchange()
        seconds.append(time.perf_counter() - start)
    barrier()
    print(json.dumps(seconds[WARM_UP:]), flush=True)
    os._exit(0)


def run(way: str, rounds: int) -> list[float]:
    """One cluster; the seconds of every round on every worker."""
    environment = clusters.environment(WORKERS)
    stock = [sys.executable, "-c", "import esync, mxnet"]  # with DMLC_ROLE set, this runs MXNet's own role
    scheduler, server = stock, stock
    if way == "esync":
        scheduler, server = [sys.executable, "-m", "esync.scheduler"], [sys.executable, "-m", "esync.server", "-c", "1"]
    worker = [sys.executable, __file__, "--worker", way, "--rounds", str(rounds)]
    quiet = subprocess.DEVNULL
    helpers = [
        subprocess.Popen(command, env={**environment, "DMLC_ROLE": role}, stderr=quiet)
        for role, command in (("scheduler", scheduler), ("server", server))
    ]
    workers = [
        subprocess.Popen(worker, env={**environment, "DMLC_ROLE": "worker"}, stdout=subprocess.PIPE, stderr=quiet)
        for _ in range(WORKERS)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in workers]
        return [seconds for output in outputs for seconds in json.loads(output)]
    finally:
        for process in (*workers, *helpers):
            process.kill()
            process.wait()


def main() -> int:
    """Measure all ways in turn, print the medians and the ratios; 1 where the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="rounds that count in each turn (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="turns of every way (default: %(default)s)")
    parser.add_argument("--worker", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.rounds)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(arguments.turns):
        for way in WAYS:
            print(f"turn {turn + 1} of {arguments.turns}: {way} …", flush=True)
            seconds[way] += run(way, arguments.rounds)
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    base = medians["published, key by key"]
    print(f"one exchange of ResNet-18, {WORKERS} workers, 1 server, this machine; Δ and setting the weights included:")
    for way, median in medians.items():
        print(f"  {way:22} median {median:.3f} s   {median / base:.2f} of the published way")
    ratio = medians["esync"] / base
    print(f"target: at most {TARGET} of the published way: {program.verdict(ratio <= TARGET)}")
    figures = {"seconds": medians, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET}
    write_figures(arguments.json, figures)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    program.run(main)
