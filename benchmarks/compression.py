"""What does `--compression` save, and what does it cost?

    python benchmarks/compression.py [PART …] [--json FILE]

* wire: a real cluster on this machine, two workers and one server, ResNet-18's 11 million weights:
  bytes of an exchange counted at the workers' sockets, its seconds with and without the local step
  before it, and seconds of processor time on a worker and on the server. Three clusters of each
  kind take turns, because a machine's speed changes;
* codec: seconds to pack and to unpack ResNet-18's weights, on one core;
* cost: two workers and a server of ResNet-18's size in this process, without a network: processor
  seconds of the server's main thread for a round (it packs in a second one meanwhile), and of a
  worker for its payload and for the answer. Processor time, so that it can be measured on a busy
  machine;
* traffic: the paper's cluster (clusters/paper.yaml, 1 Gbit/s) in virtual time without gradients:
  efficiency, computing time ratio, and bytes per second at the server beside ASGD's;
* accuracy: the same real cluster trains lenet on Fashion-MNIST, with ESync, with and without fp16;
* lenet: the paper's cluster with real gradients of lenet, with as much less bandwidth as lenet is
  smaller than ResNet-18, so that an exchange takes as long: time to an accuracy of 0.8, final
  accuracy, bytes.

What `--json FILE` has already is not measured again, so this can be stopped at any time and started
anew.
"""

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.clusters import Cluster
from harness.exchanges import Vector, exchanges, tensors
from harness.figures import read_figures, write_figures
from harness.timing import in_turns, median_of, medians

from esync import config
from esync.exchange import ModelSink, Source, Specification
from esync.exchange.codecs.base import Decoder, Encoder, GetBuffer, PackedArray
from esync.exchange.codecs.sparse import Sparse
from esync.exchange.protocol.parameter_server import ParameterServer
from tests.support.memory_exchanges import MemoryExchanges

KINDS = ("none", "fp16", "4bit", "2bit")
PARTS = ("wire", "codec", "cost", "traffic", "accuracy", "lenet")
#: Target: bytes per second of ASGD ÷ those of compressed ESync.
FEWER = 40
WIRE_ROUNDS, WIRE_WARM_UP, WIRE_TURNS = 20, 3, 3
COST_WORKERS, COST_ROUNDS, COST_WARM_UP = 2, 7, 1
REPEATS = 5
ROUNDS = 100
SEEDS = (0, 1)
#: Of all workers; learning rates on the gradient summed over the batch.
EPOCHS, RATE = 4, 0.001
#: 1 Gbit/s × lenet's 61,706 weights ÷ ResNet-18's 11,175,370.
BANDWIDTH = "5.52Mbit"


# --- wire -----------------------------------------------------------------------------------------


def wire_worker(kind: str) -> None:
    """Run a worker of the real cluster, which prints its figures of each exchange as JSON."""
    from esync.algorithms import ESync

    exchanges(ESync(local_iterations=1, compression=kind), WIRE_WARM_UP, WIRE_ROUNDS)


def wire(kind: str, workers: int = 2) -> dict[str, float]:
    """Run a real cluster; return the medians of one exchange and the server's processor time."""
    with Cluster(workers) as cluster:
        cluster.start(*[(__file__, "--worker", kind)] * workers)
        for process in cluster.workers:
            assert process.stdout is not None
            process.stdout.readline()  # its warm-up is over
        server = cluster.processes["server-0"].pid
        before = processor_time(server)
        times = list(chain.from_iterable(cluster.results()))
        spent = (processor_time(server) - before) / WIRE_ROUNDS
    names = ("seconds", "exchange", "processor", "sent", "received")
    return {**medians({name: [row[name] for row in times] for name in names}), "server_processor": spent}


def wires(kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """Run clusters of these kinds in turns; return the median of each figure."""
    runs = in_turns({kind: partial(wire, kind) for kind in kinds}, WIRE_TURNS)
    return {kind: medians({name: [turn[name] for turn in turns] for name in turns[0]}) for kind, turns in runs.items()}


def processor_time(pid: int) -> float:
    """Return the seconds of processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- codec ----------------------------------------------------------------------------------------


def codec(kind: str) -> dict[str, float]:
    """Return the seconds to pack a worker's payload, and to add it up."""
    from esync.exchange.codecs.factory import codec_of
    from esync.exchange.protocol.layout import WEIGHTS, Layout
    from esync.simulate.timing import SIZES

    size, rng = SIZES["resnet18-v1"][WEIGHTS], np.random.default_rng(0)
    layout, tensors = Layout({WEIGHTS: size}, 1), [size // 64] * 63 + [size - size // 64 * 63]
    values = rng.standard_normal(size, np.float32)
    codec = codec_of(Specification("add_mean_update", True, compression=kind, tensors=tensors), layout, 2)
    encoder, uplink = codec.encoder(0), codec.uplink(0)
    total = {bucket.index: np.zeros(bucket.stop - bucket.start, np.float32) for bucket in layout.buckets}
    payload: dict[int, np.ndarray] = {}

    def pack() -> None:
        buffers: dict[int, np.ndarray] = {}

        def buffer(key: int, elements: int) -> np.ndarray:
            return buffers.setdefault(key, np.empty(elements, np.float32))

        payload.clear()
        payload.update({place: buffers[key] for _, key, place in encoder.write(Vector(values), buffer)})

    return {
        "pack": median_of(pack, REPEATS),
        "unpack": median_of(lambda: uplink.add(payload, lambda index, _: (total[index], False), 1.0), REPEATS),
    }


# --- cost -----------------------------------------------------------------------------------------


class CountedExchanges:
    """Exchanges whose processor time is measured.

    `took` has the seconds of each part, one value per round or worker.
    """

    def __init__(self, kind: str, sizes: list[int]) -> None:
        rng, total = np.random.default_rng(0), sum(sizes)
        weights = rng.standard_normal(total, np.float32)
        self.updates = [rng.standard_normal(total, np.float32) for _ in range(COST_WORKERS)]
        asked = Specification("add_mean_update", True, compression=kind, tensors=sizes)
        self.exchanges = MemoryExchanges(asked, COST_WORKERS, weights, 1, config.BUCKET_ELEMENTS)
        self.took: dict[str, list[float]] = {"server": [], "payload": [], "answer": []}
        self._server = 0.0
        self._count_server(self.exchanges.servers[0])
        for worker in self.exchanges.workers:
            self._count_payload(worker.codec.encoder)
            self._count_answer(worker.codec.decoder)

    def rounds(self) -> dict[str, float]:
        """Run all rounds; return the medians in seconds."""
        for _ in range(COST_WARM_UP + COST_ROUNDS):
            self._server = 0.0
            self.exchanges.round(self.exchanges.workers, self.updates)
            self.took["server"].append(self._server)
        left_out = {
            "server": COST_WARM_UP,
            "payload": COST_WARM_UP * COST_WORKERS,
            "answer": COST_WARM_UP * COST_WORKERS,
        }
        return medians({part: seconds[left_out[part] :] for part, seconds in self.took.items()})

    def _count_server(self, server: ParameterServer) -> None:
        push = server.push

        def counted(key: int, received: np.ndarray, stored: np.ndarray) -> None:
            begun = time.thread_time()
            push(key, received, stored)
            self._server += time.thread_time() - begun

        server.push = counted  # type: ignore[method-assign]

    def _count_payload(self, encoder: Encoder) -> None:
        write = encoder.write

        def counted(values: Source | Sparse, buffer: GetBuffer, compression: int = 0) -> Iterator[PackedArray]:
            arrays, spent = write(values, buffer, compression), 0.0
            while True:
                begun = time.thread_time()
                array = next(arrays, None)
                spent += time.thread_time() - begun
                if array is None:
                    break
                yield array
            self.took["payload"].append(spent)

        encoder.write = counted  # type: ignore[method-assign]

    def _count_answer(self, decoder: Decoder) -> None:
        read = decoder.read

        def counted(server: int, arrays: Iterable[np.ndarray], form: int, model: ModelSink) -> None:
            arrived = list(arrays)
            begun = time.thread_time()
            read(server, arrived, form, model)
            self.took["answer"].append(time.thread_time() - begun)

        decoder.read = counted  # type: ignore[method-assign]


def cost(kind: str) -> dict[str, float]:
    """Return the processor seconds of each side."""
    return CountedExchanges(kind, tensors()).rounds()


# --- traffic and lenet ----------------------------------------------------------------------------


def simulated(changes: dict[str, Any], **flags: Any) -> dict[str, Any]:
    """Simulate the paper's cluster; return the figures."""
    from esync.simulate.job import SimulationJob, run

    numerics = "none" if "rounds" in flags else "real"
    file = program.CLUSTERS / "paper.yaml"
    begun = time.process_time()
    result = run(SimulationJob(file, numerics, typed=flags, changes=changes, logs=False, quiet=True)).result
    server = result["traffic"][result["servers"][0]]
    return {
        "rounds": result["rounds"],
        "seconds": result["seconds"],
        "efficiency": result["efficiency"],
        "computing": min(device["computing_ratio"] for device in result["devices"]),
        "server_received": server["received"],
        "server_sent": server["sent"],
        "final_accuracy": result["final_accuracy"],
        "to_0.8": result["time_to"].get("0.8"),
        "core_seconds": time.process_time() - begun,
    }


def traffic(name: str) -> dict[str, Any]:
    """Return the figures of a case MODE or MODE,KIND, simulated without gradients."""
    mode, _, kind = name.partition(",")
    return simulated({}, mode=mode, rounds=ROUNDS, **({"compression": kind} if kind else {}))


def lenet(name: str) -> dict[str, Any]:
    """Return the figures of a case KIND,SEED, simulated with gradients."""
    kind, seed = name.split(",")
    return simulated(
        {"network.bandwidth": BANDWIDTH},
        network="lenet",
        compression=kind,
        seed=int(seed),
        epochs=EPOCHS,
        local_lr=RATE,
        partition="uniform",
        test_images=2500,
    )


# --- accuracy -------------------------------------------------------------------------------------


def accuracy(name: str) -> dict[str, float]:
    """Return final accuracy and bytes of a case KIND,SEED, on a real cluster.

    Two workers do 32 local iterations of 64 images in each round.
    """
    kind, seed = name.split(",")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", "esync", "-n", "lenet", "-c", "1", "--local-iterations", "32", "-ll", f"{RATE:g}", "-e", "1000"]
        flags += ["--seed", seed, "--epochs", "2", "--compression", kind, "--no-export", "--quiet", "-ld"]
        words = [["-m", "esync.worker", *flags, f"{folder}/{worker}"] for worker in range(2)]

        with Cluster(len(words)) as cluster:
            cluster.start(*words)
            cluster.outputs()
        files = list(Path(folder).glob("*/*/iter-*.txt"))
        rounds = [json.loads(file.read_text()) for file in files]
    last = max(entry["num_iters"] for entry in rounds)
    return {
        "rounds": last,
        "accuracy": max(entry.get("accuracy", 0.0) for entry in rounds if entry["num_iters"] == last),
        "sent": statistics.median(entry["bytes_sent"] for entry in rounds),
        "received": statistics.median(entry["bytes_received"] for entry in rounds),
    }


# --- all of it ------------------------------------------------------------------------------------


def cases(part: str) -> list[str]:
    """Return the names of the cases of a part."""
    if part == "traffic":
        return ["async", *(f"{mode},{kind}" for mode in ("esync", "sync") for kind in KINDS)]
    if part == "accuracy":
        return [f"{kind},{seed}" for seed in SEEDS for kind in ("none", "fp16")]
    if part == "lenet":
        return [f"{kind},{seed}" for seed in SEEDS for kind in KINDS]
    if part == "cost":
        return ["none", "fp16"]
    return list(KINDS[1:] if part == "codec" else KINDS)


def targets(figures: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the targets of what was measured, and whether they are met."""
    verdicts = []
    if {"none", "fp16"} <= set(figures.get("wire", {})):
        plain, half = figures["wire"]["none"], figures["wire"]["fp16"]
        share = (half["sent"] + half["received"]) / (plain["sent"] + plain["received"])
        verdicts.append((f"fp16: half of the bytes: {share:.3f}", share < 0.51))
        times = half["exchange"] / plain["exchange"]
        verdicts.append((f"fp16: no slower, on loopback: {times:.2f} times as long", times <= 1))
    runs = figures.get("traffic", {})
    rate = {name: (run["server_received"] + run["server_sent"]) / run["seconds"] for name, run in runs.items()}
    for name in rate:
        if "async" in rate and name.startswith("esync,") and not name.endswith("none"):
            fewer = rate["async"] / rate[name]
            verdicts.append((f"{name}: bytes per second 1/{FEWER} of ASGD's: 1/{fewer:.1f}", fewer >= FEWER))
    return verdicts


def main() -> int:
    """Measure what is missing, and print everything; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all of them)")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        wire_worker(arguments.worker)
    if wrong := set(arguments.parts) - set(PARTS):
        parser.error(f"{min(wrong)!r} is not a part; there are {', '.join(PARTS)}")
    figures = read_figures(arguments.json)
    measure = {"codec": codec, "cost": cost, "traffic": traffic, "accuracy": accuracy, "lenet": lenet}
    for part in arguments.parts or PARTS:
        known = figures.setdefault(part, {})
        missing = [name for name in cases(part) if name not in known and re.search(arguments.only, name)]
        together = wires(missing) if part == "wire" and missing else {}
        for name in missing:
            known[name] = together[name] if part == "wire" else measure[part](name)
            write_figures(arguments.json, figures)
            shown = {key: round(value, 4) for key, value in figures[part][name].items() if value is not None}
            print(f"{part} {name}: {shown}", flush=True)
    if {"none", "fp16"} <= set(figures.get("cost", {})):
        ratio = figures["cost"]["fp16"]["server"] / figures["cost"]["none"]["server"]
        print(f"a server's round: {ratio:.2f} times as long with fp16")
    for text, met in targets(figures):
        print(f"target: {text}: {program.verdict(met)}")
    return 0


if __name__ == "__main__":
    program.run(main)
