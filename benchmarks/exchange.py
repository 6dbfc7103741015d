"""What does one exchange of a model cost?

    python benchmarks/exchange.py [--json FILE]

Three workers and one server on this machine exchange ResNet-18's model updates: as the published
implementation does (push, pull, wait, key by key), with stock dist_sync at its best (all pushes
first, then all pulls), and with this project's exchange. All three compute the update Δ from their
weights and set the new weights, which is part of the time. The ways take turns, so that a busy
machine is busy for all of them; what counts is the ratio.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from harness import program
from harness.clusters import SCHEDULER, SERVER, Cluster
from harness.figures import write_figures
from harness.timing import in_turns, medians

from esync.runtime import distributed_stores
from esync.runtime.mxnet_import import mx

WORKERS = 3
TARGET = 0.65  # of the time that the published way takes
WARM_UP = 3  # rounds before those that count
GLOBAL_LR = 1.0


def stock(net: Any, key_by_key: bool) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return an exchange on MXNet's own dist_sync server, and a barrier.

    Key by key, as published, it pushes, pulls and waits for one parameter after the other; else it pushes all, then
    pulls all.
    """
    kvstore = distributed_stores.create(mx, "dist_sync")
    parameters = list(net.collect_params().values())
    before = []
    for key, parameter in enumerate(parameters):
        kvstore.init(key, parameter.data().copy())
        before.append(parameter.data().copy())
    mx.nd.waitall()
    keys = range(len(parameters))

    def exchange() -> None:
        for turn in [[key] for key in keys] if key_by_key else [keys]:
            for key in turn:
                kvstore.push(key, parameters[key].data() - before[key], priority=-key)
            totals = {key: mx.nd.empty(parameters[key].shape) for key in turn}
            for key, total in totals.items():
                kvstore.pull(key, total, priority=-key)
            for key, total in totals.items():
                if key_by_key:
                    total.wait_to_read()
                parameters[key].set_data(before[key] + GLOBAL_LR * (total / kvstore.num_workers))
                before[key] = parameters[key].data().copy()
        mx.nd.waitall()

    return exchange, kvstore._barrier


def ours(net: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return this project's exchange for ESync, and a barrier."""
    import esync
    from esync.algorithms import ESync

    algorithm = ESync(global_lr=GLOBAL_LR, local_iterations=1)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=algorithm)
    trainer.start()
    exchange: Any = trainer.algorithm.exchange
    return algorithm.aggregate, exchange.store.store._barrier


WAYS: dict[str, Callable[[Any], tuple[Callable[[], None], Callable[[], None]]]] = {
    "published, key by key": partial(stock, key_by_key=True),
    "stock dist_sync": partial(stock, key_by_key=False),
    "esync": ours,
}


def work(way: str, rounds: int) -> None:
    """Run a worker, which prints the seconds of every counted round as JSON."""
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
    """Run a cluster; return the seconds of every counted round on every worker."""
    stock = ("-c", "import numpy; numpy.bool = bool; import mxnet")  # with DMLC_ROLE set, this runs MXNet's own role
    scheduler, server = (SCHEDULER, SERVER) if way == "esync" else (stock, stock)
    with Cluster(WORKERS, scheduler=scheduler, server=server) as cluster:
        cluster.start(*[(__file__, "--worker", way, "--rounds", str(rounds))] * WORKERS)
        return [seconds for taken in cluster.results() for seconds in taken]


def main() -> int:
    """Measure all ways in turn, print medians and ratios; return 1 if the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="rounds that count in each turn (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="turns of every way (default: %(default)s)")
    parser.add_argument("--worker", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.rounds)
    measured = in_turns({way: partial(run, way, arguments.rounds) for way in WAYS}, arguments.turns, tell="")
    seconds = medians({way: list(chain.from_iterable(turns)) for way, turns in measured.items()})
    base = seconds["published, key by key"]
    print(f"one exchange of ResNet-18, {WORKERS} workers, 1 server, this machine; Δ and setting the weights included:")
    for way, median in seconds.items():
        print(f"  {way:22} median {median:.3f} s   {median / base:.2f} of the published way")
    ratio = seconds["esync"] / base
    print(f"target: at most {TARGET} of the published way: {program.verdict(ratio <= TARGET)}")
    figures = {"seconds": seconds, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET}
    write_figures(arguments.json, figures)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    program.run(main)
