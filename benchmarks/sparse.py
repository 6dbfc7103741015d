"""What do sparse exchanges cost, and what do they save?

    python benchmarks/sparse.py [--json FILE]

Three questions, on ResNet-18's 11 million weights with 1 % sent:

* the worker: seconds to compress a gradient, to encode the message and to read an answer, on one
  core;
* the server: seconds for each message of 1 to 64 workers whose messages have hardly any places in
  common, with and without secondary compression, from the arrival of the commit to the moment when
  the answer is ready;
* the wire: bytes of an exchange, counted at the worker's sockets with all padding, and its seconds,
  in a real cluster of two workers and one server on this machine, dense (async) and sparse (dgs).
"""

import argparse
import os
import statistics
import time
from itertools import chain
from typing import Any

import numpy as np
from harness import program
from harness.clusters import Cluster
from harness.exchanges import exchanges, tensors
from harness.figures import write_figures
from harness.timing import median_of, medians

RATIO = 0.01
#: Targets: bytes of ASGD ÷ bytes of DGS with 1 % both ways; seconds of the server at 16 workers
#: without compression.
FEWER, SERVER_SECONDS, SERVER_WORKERS = 40, 0.015, 16
REPEATS = 7
CROWDED = 0.15  # share of the weights that an answer holds with 16 workers whose messages have no place in common
TURNS = 24  # messages that the server's time is the median of, at least
WIRE_ROUNDS, WIRE_WARM_UP = 12, 4


def worker(sizes: list[int]) -> dict[str, float]:
    """Return the seconds of each step on a worker."""
    from esync.exchange.codecs.sparse import bounds_of
    from esync.exchange.codecs.sparse.compressors import DeepGradientCompression, GradientDropping, SAMomentum
    from esync.exchange.codecs.sparse.message_format import MessageFormat
    from esync.exchange.codecs.sparse.selection import Selection

    rng = np.random.default_rng(0)
    total = sum(sizes)
    gradients = [rng.standard_normal(total, np.float32) for _ in range(3)]
    figures = {}
    scratch = np.empty(total, np.float32)
    steps = iter(gradients * 100)
    compressors = {"gd-async": GradientDropping, "dgs": SAMomentum, "dgc-async": DeepGradientCompression}
    for name, kind in compressors.items():
        compressor = kind(Selection(sizes, RATIO))

        def compress(compressor: Any = compressor) -> None:
            np.copyto(scratch, next(steps))
            compressor.compress(scratch, 0.1, 0.7)

        figures[f"compress, {name}"] = median_of(compress, REPEATS)
    message_format = MessageFormat(bounds_of(sizes))
    entries = SAMomentum(Selection(sizes, RATIO)).compress(gradients[0].copy(), 0.1, 0.7)
    message = message_format.message(entries).whole()
    figures["code a message"] = median_of(lambda: message_format.message(entries).whole(), REPEATS)
    figures["read a message"] = median_of(lambda: message_format.decode(message), REPEATS)
    places = np.flatnonzero(rng.random(total, np.float32) < CROWDED)
    answer = message_format.message((places, gradients[0][places])).whole()
    figures[f"read an answer of {CROWDED:.0%}"] = median_of(lambda: message_format.decode(answer), REPEATS)
    return figures


def server(sizes: list[int], workers: int, secondary: float) -> dict[str, Any]:
    """Return the seconds of a server for each message, and the bytes that it keeps."""
    from esync.exchange import Specification
    from esync.exchange.codecs.factory import worker_codec
    from esync.exchange.protocol import wire
    from tests.support.memory_servers import MemoryServers

    rng = np.random.default_rng(0)
    total = sum(sizes)
    options = {"tensors": sizes, "secondary_ratio": secondary, "dense_below": 1024, "values": "float32"}
    packed = Specification("difference", False, options, private=bool(secondary), sparse=True)
    fed = {"synchronous": False, "private": packed.private, "bucket_elements": 999_992, "packed": packed}
    cluster = MemoryServers(workers, np.zeros(total, np.float32), **fed)  # type: ignore[arg-type]
    node, status_key = cluster.nodes[0], cluster.layout.status_key(0)
    encoders = [worker_codec(packed, cluster.layout, workers, rank).encoder for rank in range(workers)]
    steps = []
    for _ in range(min(workers, 16)):  # with more workers the same places come again
        places = np.flatnonzero(rng.random(total, np.float32) < RATIO)
        steps.append((places, rng.standard_normal(places.size, np.float32)))
    seconds, processor, received, answered = [], [], 0, 0
    for turn in range(workers + max(2 * workers, TURNS)):
        rank, sequence = turn % workers, 1 + turn // workers
        pieces: dict[int, np.ndarray] = {}

        def buffer(key: int, elements: int, pieces: dict[int, np.ndarray] = pieces) -> np.ndarray:
            pieces[key] = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
            return pieces[key][wire.HEADER_ELEMENTS :]

        for _, key, place in encoders[rank].write(steps[turn % len(steps)], buffer):
            wire.stamp(pieces[key], wire.PAYLOAD, rank, 1000 + rank, sequence, place)
            if key not in node.stored:  # the first array of a key is kept without being looked at
                node.push(key, pieces[key])
            node.push(key, pieces[key])
        commit = cluster.message(0, wire.COMMIT, rank, sequence=sequence, samples=1, buckets=len(pieces)).values
        begun, worked = time.perf_counter(), time.thread_time()
        node.server.push(status_key, commit, node.stored[status_key])
        if turn >= workers:  # before that, less is owed
            seconds.append(time.perf_counter() - begun)
            processor.append(time.thread_time() - worked)
        status = cluster.status()
        assert status["acknowledged"][rank] == sequence, "the server has not used this message"
        received = sum(array.nbytes - 4 * wire.HEADER_ELEMENTS for array in pieces.values())
        answered = int(status["answer"][rank])
    return {
        "seconds": statistics.median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "processor": statistics.median(processor),
        "message_bytes": received,
        "answer_bytes": answered,
        "server_bytes": node.server.downlink.memory_bytes,
    }


def wire_worker(mode: str) -> None:
    """Run a worker of the real cluster, which prints its figures of each exchange as JSON."""
    from esync.algorithms import ASGD, DGS

    algorithm = ASGD() if mode == "async" else DGS(ratio=RATIO, secondary_ratio=RATIO)
    exchanges(algorithm, WIRE_WARM_UP, WIRE_ROUNDS)


def wire(mode: str, workers: int = 2) -> dict[str, float]:
    """Run a real cluster; return the medians of one exchange."""
    with Cluster(workers) as cluster:
        cluster.start(*[(__file__, "--worker", mode)] * workers)
        figures = list(chain.from_iterable(cluster.results()))
    return medians({name: [row[name] for row in figures] for name in ("seconds", "sent", "received")})


def main() -> int:
    """Measure, print and compare with the targets; return 1 if one is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16, 64], help="for the server's time")
    parser.add_argument("--worker", choices=("async", "dgs"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        wire_worker(arguments.worker)
    sizes = tensors()
    load = os.getloadavg()[0]
    figures: dict[str, Any] = {"load": load, "worker": worker(sizes), "server": [], "wire": {}}
    print(f"worker, ResNet-18 ({sum(sizes):,} weights), {RATIO:.0%} sent, one core:")
    for name, seconds in figures["worker"].items():
        print(f"  {name:22} {1000 * seconds:7.1f} ms", flush=True)
    print("server, for each message:")
    for secondary in (0.0, RATIO):
        for workers in arguments.workers:
            one = server(sizes, workers, secondary)
            figures["server"].append({"workers": workers, "secondary": secondary, **one})
            print(
                f"  {workers:3} workers, {'with' if secondary else 'without'} secondary compression: "
                f"{1000 * one['seconds']:7.1f} ms (processor {1000 * one['processor']:.1f}, least "
                f"{1000 * one['least']:.1f}), answer {one['answer_bytes'] / 1e6:.2f} MB, "
                f"{one['server_bytes'] / 1e6:.0f} MB kept",
                flush=True,
            )
    for mode in ("async", "dgs"):
        figures["wire"][mode] = one = wire(mode)
        print(
            f"wire, {mode:5}: {one['sent'] / 1e6:.3f} MB sent, {one['received'] / 1e6:.3f} MB received, "
            f"{one['seconds']:.3f} s for one exchange",
            flush=True,
        )
    dense, sparse = (figures["wire"][mode] for mode in ("async", "dgs"))
    fewer = (dense["sent"] + dense["received"]) / (sparse["sent"] + sparse["received"])
    figures["times_fewer_bytes"] = fewer
    met = [fewer >= FEWER]
    print(f"a dense exchange of two workers takes {dense['seconds']:.3f} s, a sparse one {sparse['seconds']:.3f} s")
    print(f"target: {FEWER} times fewer bytes: {fewer:.1f}: {program.verdict(met[0])}")
    for one in figures["server"]:
        if one["workers"] == SERVER_WORKERS and not one["secondary"]:
            met.append(one["seconds"] <= SERVER_SECONDS)
            print(
                f"target: a message of {SERVER_WORKERS} workers in {1000 * SERVER_SECONDS:g} ms: "
                f"{1000 * one['seconds']:.1f} ms: {program.verdict(met[-1])} (load {load:.1f})"
            )
    figures["met"] = all(met)
    write_figures(arguments.json, figures)
    return 0 if all(met) else 1


if __name__ == "__main__":
    program.run(main)
