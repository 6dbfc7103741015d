"""What do packing and unpacking cost each side of an exchange? `python benchmarks/compression_cost.py [--json FILE]`.

Two workers and a server of ResNet-18's size in this process, without a network: processor seconds of the server's main
thread for a round (it packs in a second one meanwhile), and of a worker for its payload and for the answer; float32
and fp16. Processor time, so that it can be measured on a busy machine; `benchmarks/compression.py wire` has the
seconds of real exchanges.
"""

import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import sparse
from harness import program
from harness.figures import write_figures

from esync import config
from esync.exchange import Model, Source, Specification
from esync.exchange.codecs.base import Decoder, Encoder, Packed, Room
from esync.exchange.codecs.sparse import Sparse
from esync.exchange.protocol.parameter_server import ParameterServer
from tests.exchange.memory_exchanges import MemoryExchanges

KINDS, WORKERS, ROUNDS, WARM_UP = ("none", "fp16"), 2, 7, 1


class Cluster:
    """Exchanges whose processor time is counted; `took` has the seconds of each part, for every round or worker."""

    def __init__(self, kind: str, sizes: list[int]) -> None:
        rng, total = np.random.default_rng(0), sum(sizes)
        weights = rng.standard_normal(total, np.float32)
        self.updates = [rng.standard_normal(total, np.float32) for _ in range(WORKERS)]
        asked = Specification("add_mean_update", True, compression=kind, tensors=sizes)
        self.exchanges = MemoryExchanges(asked, WORKERS, weights, 1, config.BUCKET_ELEMENTS)
        self.took: dict[str, list[float]] = {"server": [], "payload": [], "answer": []}
        self._server = 0.0
        self._count_server(self.exchanges.servers[0])
        for worker in self.exchanges.workers:
            self._count_payload(worker.codec.encoder)
            self._count_answer(worker.codec.decoder)

    def rounds(self) -> dict[str, float]:
        """Medians in seconds."""
        for _ in range(WARM_UP + ROUNDS):
            self._server = 0.0
            self.exchanges.round(self.exchanges.workers, self.updates)
            self.took["server"].append(self._server)
        left_out = {"server": WARM_UP, "payload": WARM_UP * WORKERS, "answer": WARM_UP * WORKERS}
        return {part: statistics.median(seconds[left_out[part] :]) for part, seconds in self.took.items()}

    def _count_server(self, server: ParameterServer) -> None:
        push = server.push

        def counted(key: int, received: np.ndarray, stored: np.ndarray) -> None:
            begun = time.thread_time()
            push(key, received, stored)
            self._server += time.thread_time() - begun

        server.push = counted  # type: ignore[method-assign]

    def _count_payload(self, encoder: Encoder) -> None:
        write = encoder.write

        def counted(values: Source | Sparse, room: Room) -> Iterator[Packed]:
            arrays, spent = write(values, room), 0.0
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

        def counted(server: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
            arrived = list(arrays)
            begun = time.thread_time()
            read(server, arrived, length, model)
            self.took["answer"].append(time.thread_time() - begun)

        decoder.read = counted  # type: ignore[method-assign]


def main() -> int:
    """Measure, print."""
    parser = program.parser(__doc__)
    options = parser.parse_args()
    sizes, figures = sparse.tensors(), dict[str, Any]()
    for kind in KINDS:
        figures[kind] = Cluster(kind, sizes).rounds()
        shown = ", ".join(f"{part} {1000 * seconds:.1f} ms" for part, seconds in figures[kind].items())
        print(f"{kind}: {shown}", flush=True)
    figures["ratio"] = figures["fp16"]["server"] / figures["none"]["server"]
    print(f"a server's round: {figures['ratio']:.2f} times as long with fp16")
    write_figures(options.json, {"command": program.command(), **figures})
    return 0


if __name__ == "__main__":
    program.run(main)
