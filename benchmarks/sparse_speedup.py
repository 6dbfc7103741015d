"""How fast is DGS, beside its published speed-up table, with a server that works?

    python benchmarks/sparse_speedup.py [--json FILE]

ResNet-18 on 1, 2, 4, 8 and 16 workers at 10 and 1 Gbit/s: speed-up = n · 0.338 s ÷ (time of an
iteration), where an iteration computes as long as published. The published DGS server echoed what
it got; this one is the real one: its seconds for each message, and how long its answers are, are
measured first, on this machine, as `benchmarks/sparse.py` does it: workers' messages have hardly a
place in common. What --json FILE has already is not measured again. Then
the simulator plays each cluster: the real protocol, the modelled network, virtual time; no
gradients.

Compressing on a worker is not in it: the published workers did it on a GPU.
"""

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import sparse
from harness import program
from harness.exchanges import tensors
from harness.figures import read_figures, write_figures

from esync import config
from esync.algorithms import ASGD
from esync.exchange import STATISTICS, WEIGHTS, Specification
from esync.exchange.codecs.base import WorkerCodec
from esync.exchange.codecs.sparse_messages import PieceKeys
from esync.exchange.codecs.uncompressed import UncompressedDecoder, UncompressedEncoder
from esync.exchange.protocol import wire
from esync.exchange.protocol.layout import Layout
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.transfer import NO_KEY
from esync.launch import flags
from esync.simulate.cluster import ClusterModel
from esync.simulate.coordination import StateServerModel
from esync.simulate.devices import DeviceModel
from esync.simulate.network import Link
from esync.simulate.servers import ServerModel
from esync.simulate.simulation import Simulation
from esync.simulate.store import bytes_of
from esync.simulate.timing import TimedIteration, TimedTrainer
from esync.simulate.world import SimulatedWorld, WorkerModel

WORKERS = (1, 2, 4, 8, 16)
#: Published: seconds of an iteration by the number of workers, and of one alone.
COMPUTE = {1: 0.330, 2: 0.330, 4: 0.331, 8: 0.344, 16: 0.375}
ALONE = 0.338
PUBLISHED = {
    ("DGS", 10): (1.00, 2.00, 3.99, 7.68, 13.97),
    ("DGS", 1): (1.00, 1.99, 3.87, 7.33, 12.61),
    ("ASGD", 10): (0.68, 1.28, 2.31, 3.28, 3.91),
    ("ASGD", 1): (0.30, 0.44, 0.73, 0.89, 0.86),
}
DGS, DGS_SECONDARY, ASGD_ = "DGS", "DGS, secondary 1 %", "ASGD"
ROUNDS, LATENCY, JITTER = 60, 1e-4, 0.05
RESNET = {WEIGHTS: 11_175_370, STATISTICS: 0}  # what is measured has everything


@dataclass(frozen=True)
class Cost:
    """The measured costs of one exchange.

    Attributes:
        server: seconds of the server.
        sent: bytes to the server, and number of pieces.
        received: bytes of the answer, and number of pieces.
    """

    server: float
    sent: tuple[int, int]
    received: tuple[int, int]


@dataclass(frozen=True)
class MeasuredServer(ServerModel):
    """A server that takes as long for a payload as was measured.

    Attributes:
        payload: bytes of a payload with its commit.
        seconds: seconds that such a payload takes.
    """

    payload: float = math.inf
    seconds: float = 0.0

    def cost(self, messages: int, size: float) -> float:
        """See `ServerModel.cost`."""
        return self.seconds if size == self.payload and messages > 1 else super().cost(messages, size)


class MeasuredEncoder(UncompressedEncoder):
    """An encoder whose payloads are as long as measured."""

    def __init__(self, pieces: list[int], layout: Layout) -> None:
        super().__init__(layout, 0)
        self._pieces = pieces

    def sizes(self, server: int, compression: int = 0) -> list[int]:
        """See `Encoder.sizes`."""
        return self._pieces


class MeasuredDecoder(UncompressedDecoder):
    """A decoder whose answers are as long as measured."""

    def __init__(self, pieces: list[int], layout: Layout) -> None:
        super().__init__(layout, 0)
        self._pieces = pieces

    def answer_sizes(self, server: int, form: int) -> list[int]:
        """See `Decoder.answer_sizes`."""
        return self._pieces


def pieces_of(size: int, messages: int) -> list[int]:
    """Divide a number of bytes among arrays; return the number of values in each."""
    values = round((size - messages * config.SIMULATE_MESSAGE_BYTES) / 4) - messages * wire.HEADER_ELEMENTS
    return [0] * (messages - 1) + [values]


class MeasuredNumerics:
    """Numerics without gradients, with messages as large as measured."""

    evaluates = False
    data_digest = ""
    samples = 1
    wire: Mapping[str, int] | None = RESNET

    def start(self, rank: int, world: SimulatedWorld) -> tuple[TimedTrainer, TimedIteration]:
        """See `simulation.Numerics.start`."""
        trainer = TimedTrainer(ASGD(), world, Limits(rounds=ROUNDS), world.simulated.step_time)
        return trainer, TimedIteration(lambda: 1)


def simulated(workers: int, gigabits: float, cost: Cost) -> float:
    """Return the seconds of an iteration, including the exchange."""
    options = flags.parse(["--mode=async", f"--rounds={ROUNDS}", "--no-evaluation"])
    message = 4.0 * wire.message_elements(workers) + config.SIMULATE_MESSAGE_BYTES
    sent, received = pieces_of(*cost.sent), pieces_of(*cost.received)
    payload = bytes_of((NO_KEY, wire.HEADER_ELEMENTS + values) for values in sent) + message
    server = MeasuredServer("server", payload=payload, seconds=cost.server)
    link = Link(gigabits * 1e9 / 8 * config.SIMULATE_GOODPUT, LATENCY / 2)
    cluster = ClusterModel(
        workers=tuple(
            WorkerModel(rank, f"worker-{rank}", "gpu0", DeviceModel(step_time=COMPUTE[workers], jitter=JITTER))
            for rank in range(workers)
        ),
        servers=(server,),
        state_server=StateServerModel("server", 0.0),
        link=lambda host: link,
        evaluation_time=0.0,
    )

    def codec(specification: Specification, layout: Layout, slots: int, rank: int) -> WorkerCodec:
        return WorkerCodec(MeasuredEncoder(sent, layout), MeasuredDecoder(received, layout))

    simulation = Simulation(cluster, options, MeasuredNumerics())
    with mock.patch("esync.exchange.protocol.client.worker_codec", codec):
        simulation.run()
    began = min(worker.began for worker in simulation.workers)
    return (max(worker.ended for worker in simulation.workers) - began) / ROUNDS


def measure(method: str, workers: int, sizes: list[int]) -> dict[str, Any]:
    """Measure what one exchange costs on this machine; see `Cost`.

    Seconds are those of the clock and those of the processor.
    """
    if method == ASGD_:
        return dense(sizes)
    measured = sparse.server(sizes, workers, sparse.RATIO if method == DGS_SECONDARY else 0.0)
    keys = PieceKeys(Layout(RESNET, 1, config.BUCKET_ELEMENTS), workers)
    pieces = keys.pieces(-(-measured["answer_bytes"] // 4))
    answer = sum(4 * (wire.HEADER_ELEMENTS + size) + config.SIMULATE_MESSAGE_BYTES for _, size in pieces)
    sent = measured["message_bytes"] + 4 * wire.HEADER_ELEMENTS + config.SIMULATE_MESSAGE_BYTES
    return {
        "seconds": measured["seconds"],
        "processor": measured["processor"],
        "sent": [sent, 1],
        "received": [answer, len(pieces)],
    }


def dense(sizes: list[int]) -> dict[str, Any]:
    """Measure the same for a dense gradient, which the server applies to the model."""
    from tests.support.memory_servers import MemoryServers

    gradient = np.random.default_rng(0).standard_normal(sum(sizes), np.float32)
    servers = MemoryServers(1, np.zeros_like(gradient), bucket_elements=config.BUCKET_ELEMENTS, synchronous=False)
    node, seconds, processor = servers.nodes[0], [], []
    for sequence in range(1, 12):
        pushes = servers.payload(0, sequence, gradient)
        begun, worked = time.perf_counter(), time.thread_time()
        for push in pushes:
            node.server.push(push.key, push.values, node.stored[push.key])
        seconds.append(time.perf_counter() - begun)
        processor.append(time.thread_time() - worked)
    buckets = len(pushes) - 1
    size = sum(push.values.nbytes + config.SIMULATE_MESSAGE_BYTES for push in pushes[:-1])
    return {
        "seconds": statistics.median(seconds[1:]),
        "processor": statistics.median(processor[1:]),
        "sent": [size, buckets],
        "received": [size, buckets],
    }


def main() -> int:
    """Measure what is missing, simulate and print; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--clock", choices=("seconds", "processor"), default="processor", help="of the server's cost")
    options = parser.parse_args()
    figures = read_figures(options.json)
    costs = figures.setdefault("costs", {})
    sizes: list[int] = []
    for method in (DGS, DGS_SECONDARY, ASGD_):
        for workers in WORKERS:
            name = ASGD_ if method == ASGD_ else f"{method}, {workers} workers"
            if name not in costs:
                sizes = sizes or tensors()
                costs[name] = measure(method, workers, sizes)
                write_figures(options.json, figures)
    rows = []
    print("| method | Gbit/s | " + " | ".join(str(workers) for workers in WORKERS) + " |")
    for method in (DGS, DGS_SECONDARY, ASGD_):
        for gigabits in (10, 1):
            ours, seconds = [], []
            for workers in WORKERS:
                measured = costs[ASGD_ if method == ASGD_ else f"{method}, {workers} workers"]
                cost = Cost(measured[options.clock], tuple(measured["sent"]), tuple(measured["received"]))
                seconds.append(simulated(workers, gigabits, cost))
                ours.append(workers * ALONE / seconds[-1])
            published = PUBLISHED.get((method, gigabits))
            rows.append(
                {
                    "method": method,
                    "gigabits": gigabits,
                    "speedup": ours,
                    "iteration_seconds": seconds,
                    "published": published,
                }
            )
            print(f"| {method} | {gigabits} | " + " | ".join(f"{ratio:.2f}" for ratio in ours) + " |")
            if published:
                print(
                    f"| published | {gigabits} | " + " | ".join(f"{speedup:.2f}" for speedup in published) + " |",
                    flush=True,
                )
    write_figures(options.json, {**figures, "command": program.command(), "clock": options.clock, "rows": rows})
    return 0


if __name__ == "__main__":
    program.run(main)
