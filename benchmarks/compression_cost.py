"""What do packing and unpacking cost each side of an exchange? `python benchmarks/compression_cost.py [--json FILE]`.

Two workers and a server of ResNet-18's size in this process, without a network: processor seconds of the server's main
thread for a round (it packs in a second one meanwhile), and of a worker for its payload and for the answer; float32
and fp16. Processor time, so that it can be measured on a busy machine; `benchmarks/compression.py wire` has the
seconds of real exchanges.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sparse
from results_file import write_figures

sys.path.insert(0, str(Path(__file__).parent.parent))

from esync import config
from esync.exchange import Flat
from esync.exchange.protocol import wire
from tests.compression.memory_workers import MemoryServers, MemoryWorker

KINDS, WORKERS, ROUNDS, WARM_UP = ("none", "fp16"), 2, 7, 1


class Cluster:
    """Servers whose processor time is counted; `took` has the seconds of each part, for every round or worker."""

    def __init__(self, kind: str, sizes: list[int]) -> None:
        rng, total = np.random.default_rng(0), sum(sizes)
        self.weights = rng.standard_normal(total, np.float32)
        self.updates = [rng.standard_normal(total, np.float32) for _ in range(WORKERS)]
        self.servers = MemoryServers(kind, WORKERS, sizes, self.weights, bucket_elements=config.BUCKET_ELEMENTS)
        self.servers.push = self.push  # type: ignore[method-assign]
        self.took: dict[str, list[float]] = {"server": [], "payload": [], "answer": []}
        self._server = 0.0

    def push(self, shard: int, key: int, values: np.ndarray) -> None:
        """As ps-lite does it, without the copies that its sockets make."""
        if key not in self.servers.stored:
            self.servers.stored[key] = values.copy()
            return
        begun = time.thread_time()
        self.servers.servers[shard].push(key, values, self.servers.stored[key])
        self._server += time.thread_time() - begun

    @contextmanager
    def counted(self, part: str) -> Iterator[None]:
        """Count what is done within it."""
        begun = time.thread_time()
        yield
        self.took[part].append(time.thread_time() - begun)

    def rounds(self, exchange: Callable[[], None]) -> dict[str, float]:
        """Medians in seconds."""
        for _ in range(WARM_UP + ROUNDS):
            self._server = 0.0
            exchange()
            self.took["server"].append(self._server)
        left_out = {"server": WARM_UP, "payload": WARM_UP * WORKERS, "answer": WARM_UP * WORKERS}
        return {part: statistics.median(seconds[left_out[part] :]) for part, seconds in self.took.items()}


def packed(cluster: Cluster) -> Callable[[], None]:
    """A round of compressed exchanges."""
    crowd = [MemoryWorker(cluster.servers, rank) for rank in range(WORKERS)]
    arrays: list[dict[int, np.ndarray]] = [{} for _ in crowd]

    def exchange() -> None:
        for worker, update, own in zip(crowd, cluster.updates, arrays, strict=True):
            worker.sequence += 1

            def room(key: int, size: int, own: dict[int, np.ndarray] = own) -> np.ndarray:
                if key not in own:
                    own[key] = np.zeros(wire.HEADER_ELEMENTS + size, np.float32)
                return own[key][wire.HEADER_ELEMENTS :]

            with cluster.counted("payload"):
                pushes = list(worker.codec.encoder.write(Flat(update), room))
            for shard, key, place in pushes:
                if key not in cluster.servers.stored:
                    worker._open(shard, key, own[key].size)
                wire.stamp(own[key], wire.PAYLOAD, worker.rank, worker.nonce, worker.sequence, place)
                cluster.push(shard, key, own[key])
            worker.say(wire.COMMIT, 0, samples=1, buckets=len(pushes), learning_rate=1.0)
        for worker in crowd:
            status = cluster.servers.status()
            assert status["acknowledged"][worker.rank] == worker.sequence, status["text"]
            wanted = worker.codec.decoder.wanted(0, int(status["answer"][worker.rank]))
            with cluster.counted("answer"):
                worker.codec.decoder.read(0, [cluster.servers.stored[key] for key, _ in wanted], 0, worker)  # type: ignore[arg-type]

    return exchange


def plain(cluster: Cluster) -> Callable[[], None]:
    """The same in float32."""
    buckets, sequence = cluster.servers.layout.buckets, [0]
    keys = [cluster.servers.layout.key(bucket) for bucket in buckets]
    arrays = [np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32) for bucket in buckets]
    for rank in range(WORKERS):
        cluster.servers.servers[0].join(rank, 1000 + rank)

    def exchange() -> None:
        sequence[0] += 1
        for rank, update in enumerate(cluster.updates):
            with cluster.counted("payload"):
                for bucket, array in zip(buckets, arrays, strict=True):
                    Flat(update).read(bucket.start, bucket.stop, array[wire.HEADER_ELEMENTS :])
            for bucket, key, array in zip(buckets, keys, arrays, strict=True):
                wire.stamp(array, wire.PAYLOAD, rank, 1000 + rank, sequence[0], bucket.index)
                cluster.push(0, key, array)
            commit = {"sequence": sequence[0], "samples": 1, "buckets": len(buckets), "learning_rate": 1.0}
            record = wire.message(wire.COMMIT, rank=rank, nonce=1000 + rank, **commit)
            cluster.push(0, 0, wire.pack(record, cluster.servers.elements))
        for _ in range(WORKERS):
            with cluster.counted("answer"):
                for bucket, key in zip(buckets, keys, strict=True):
                    values = cluster.servers.stored[key][wire.HEADER_ELEMENTS :]
                    cluster.weights[bucket.start : bucket.stop] = values

    return exchange


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description="Processor time of float32 and fp16 exchanges, without a network.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    sizes, figures = sparse.tensors(), dict[str, Any]()
    for kind in KINDS:
        cluster = Cluster(kind, sizes)
        figures[kind] = cluster.rounds((plain if kind == "none" else packed)(cluster))
        shown = ", ".join(f"{part} {1000 * seconds:.1f} ms" for part, seconds in figures[kind].items())
        print(f"{kind}: {shown}", flush=True)
    figures["ratio"] = figures["fp16"]["server"] / figures["none"]["server"]
    print(f"a server's round: {figures['ratio']:.2f} times as long with fp16")
    if options.json:
        write_figures(options.json, {"command": "python benchmarks/compression_cost.py", **figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
