"""What does a switch between synchronous and asynchronous training cost?

    python benchmarks/switch.py [--json FILE]

Four workers and two servers on this machine exchange all the time, each after a short random pause
that stands for its batch, and rank 0 asks for a switch every few exchanges, 100 times in a row.
Measured is, for every switch, the time from the moment at which the last worker has finished its
batch to the one at which the last worker has the new model and goes on in the other way; it should
be at most the time of one exchange (the median of the synchronous rounds without a switch, measured
in the same way) and 50 ms.

Every gradient is the same vector and every number of workers a power of two, so that the weights
and the momentum can be worked out bit by bit from the order of rounds and commits: after every
synchronous round, the ones next to a switch included, the weights of every worker are compared with
that, and in the end the momentum and the number of commits.
"""

import argparse
import json
import os
import statistics
import sys
import time
import zlib
from typing import Any

import numpy as np
from harness import program
from harness.clusters import Cluster
from harness.exchanges import Vector
from harness.figures import write_figures

WORKERS, SERVERS = 4, 2
MOMENTUM, RATE = 0.5, 2.0**-10
PATTERN = np.array([1.0, -0.5, 0.25, 3.0], np.float32)
MARGIN = 0.05  # seconds beside one exchange
LONGEST_PAUSE = 0.01  # seconds that stand for a batch


def work(elements: int, switches: int, every: int) -> None:
    """Run a worker, which exchanges until the run is over, and prints what it has seen as JSON."""
    from esync.exchange import STATISTICS, WEIGHTS, Payload, Specification
    from esync.exchange.protocol.round_state import Limits
    from esync.world import RealWorld

    exchange = RealWorld().exchange(Specification("momentum_sgd", synchronous=True))
    exchange.join({WEIGHTS: elements, STATISTICS: 0}, Limits(), {})
    gradient, model = Vector(np.resize(PATTERN, elements)), Vector(np.zeros(elements, np.float32))
    result = exchange.begin({WEIGHTS: Vector(np.zeros(elements, np.float32))}, model)
    random = np.random.default_rng(exchange.rank)
    seen: list[dict[str, Any]] = []
    wished = 0
    while not result.finished:
        time.sleep(random.uniform(0, LONGEST_PAUSE))
        together = bool(result.synchronous)
        wish = exchange.rank == 0 and wished < switches and len(seen) % every == every - 1
        wished += wish
        if exchange.rank == 0 and wished == switches and together and len(seen) % every == every - 2:
            exchange.stop()
        rate = RATE * (WORKERS if together else 1)
        switch = (not together) if wish else None
        payload = Payload({WEIGHTS: gradient}, 1, rate, MOMENTUM, together=together, switch=switch)
        begun = time.monotonic()
        result = exchange.start(payload, model).wait()
        seen.append(
            {
                "together": together,
                "used": result.used,
                "begun": begun,
                "ended": time.monotonic(),
                "version": result.version,
                "weights": zlib.crc32(model.values.tobytes()) if together else None,
            }
        )
    momentum = None
    if exchange.rank == 0:
        time.sleep(1.0)  # the others' last commits
        gathered = exchange.rule_state()[0]
        momentum = None if gathered is None else zlib.crc32(gathered.tobytes())
    print(json.dumps({"rank": exchange.rank, "seen": seen, "momentum": momentum, "wished": wished}), flush=True)
    exchange.close()
    os._exit(0)


def run(elements: int, switches: int, every: int) -> list[dict[str, Any]]:
    """Run the cluster; return what each worker has seen, by rank."""
    worker = (__file__, "--worker", f"--elements={elements}", f"--switches={switches}", f"--every={every}")
    with Cluster(WORKERS, SERVERS) as cluster:
        cluster.start(*[worker] * WORKERS)
        return sorted(cluster.results(), key=lambda output: output["rank"])


def by_round(seen: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return a worker's synchronous exchanges, and the numbers of its commits between them.

    The latter are commits used at once, before each of the exchanges and after the last.

    Every worker takes part in every synchronous round, so the n-th ones of all workers are one
    round.
    """
    rounds, between = [], [0]
    for each in seen:
        if each["together"]:
            rounds.append(each)
            between.append(0)
        else:
            between[-1] += each["used"]
    return rounds, between


def switch_times(outputs: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the seconds of every switch, and of every synchronous round without one beside it."""
    workers = [by_round(output["seen"]) for output in outputs]
    switches: list[float] = []
    plain: list[float] = []
    last = min(len(rounds) for rounds, _ in workers) - 1
    for number in range(last + 1):
        parts = [rounds[number] for rounds, _ in workers]
        span = max(part["ended"] for part in parts) - max(part["begun"] for part in parts)
        # With the first round after asynchronous commits the servers are synchronous again. After
        # the last round before such commits they are asynchronous.
        before, after = workers[0][1][number], workers[0][1][number + 1]
        (switches if before or after else plain).append(span)
    return switches, plain


def mistakes(outputs: list[dict[str, Any]], elements: int) -> list[str]:
    """Return what is wrong; empty if nothing is."""
    from esync.rules import Step, momentum_sgd

    workers = [by_round(output["seen"]) for output in outputs]
    counts = [sum(each["used"] for each in rounds) for rounds, _ in workers]
    if len(set(counts)) > 1:
        return [f"the workers have counted {counts} synchronous rounds"]
    wrong = []
    weights, gathered = np.zeros(len(PATTERN), np.float32), None
    for number in range(counts[0] + 1):
        for _ in range(sum(between[number] for _, between in workers)):
            weights, gathered = momentum_sgd(weights, PATTERN, gathered, Step(RATE, MOMENTUM))
        if number == counts[0]:
            break
        weights, gathered = momentum_sgd(weights, PATTERN, gathered, Step(RATE * WORKERS, MOMENTUM))
        expected = zlib.crc32(np.resize(weights, elements).tobytes())
        # After the last round before a switch the others' commits may come before a worker's pull:
        # there the next rounds tell, whose weights depend on all that went before.
        stays = not any(between[number + 1] for _, between in workers)
        if stays and any(rounds[number]["weights"] != expected for rounds, _ in workers):
            wrong.append(f"synchronous round {number + 1}: other weights than worked out")
    commits = sum(each["used"] for output in outputs for each in output["seen"])
    version = max(each["version"] for output in outputs for each in output["seen"])
    if version != commits:
        wrong.append(f"the servers have counted {version} commits, the workers {commits}")
    if gathered is None or outputs[0]["momentum"] != zlib.crc32(np.resize(gathered, elements).tobytes()):
        wrong.append("another momentum than worked out")
    return wrong


def main() -> int:
    """Measure, check and print; return 1 if the target is missed or anything is wrong."""
    parser = program.parser(__doc__)
    parser.add_argument("--switches", type=int, default=100, help="in a row (default: %(default)s)")
    parser.add_argument("--every", type=int, default=5, help="exchanges of rank 0 between two (default: %(default)s)")
    parser.add_argument("--elements", type=int, default=1_000_000, help="weights of the model (default: %(default)s)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.switches < 2 or options.switches % 2 or options.every < 3:
        parser.error("--switches should be an even number, so that it ends as it began, and --every at least 3")
    if options.worker:
        work(options.elements, options.switches, options.every)
    outputs = run(options.elements, options.switches, options.every)
    switches, plain = switch_times(outputs)
    wrong = mistakes(outputs, options.elements)
    if not plain or not switches:
        print(
            f"{len(plain)} rounds without a switch beside them and {len(switches)} with one: nothing to compare",
            file=sys.stderr,
        )
        return 1
    exchange = statistics.median(plain)
    limit = exchange + MARGIN
    late = sum(each > limit for each in switches)
    median, longest = statistics.median(switches), max(switches)
    print(f"{outputs[0]['wished']} switches, {WORKERS} workers, {SERVERS} servers, {options.elements} weights:")
    print(f"  one exchange: median {1000 * exchange:.1f} ms (longest {1000 * max(plain):.1f} ms, {len(plain)} rounds)")
    print(f"  a switch:     median {1000 * median:.1f} ms, longest {1000 * longest:.1f} ms")
    print(f"  longer than one exchange + {1000 * MARGIN:.0f} ms: {late} of {len(switches)}")
    for line in wrong[:10]:
        print(f"  WRONG: {line}")
    if not wrong:
        print("  weights, momentum and number of commits are what was worked out, bit by bit")
    met = not wrong and median <= limit and outputs[0]["wished"] >= options.switches
    print(f"target: {program.verdict(met)}")
    figures = {
        "switches": outputs[0]["wished"],
        "workers": WORKERS,
        "servers": SERVERS,
        "weights": options.elements,
        "exchange_seconds": exchange,
        "exchange_longest": max(plain),
        "switch_seconds": median,
        "switch_longest": longest,
        "late": late,
        "limit": limit,
        "commits": max(each["version"] for output in outputs for each in output["seen"]),
        "wrong": wrong,
        "met": met,
    }
    write_figures(options.json, figures)
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
