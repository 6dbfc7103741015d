"""The cost model, which predicts the time of an exchange by a collective or parameter servers.

Every message costs a latency and, per byte, time in its sender's and its receiver's port; adding
costs time per byte. A collective's schedule is walked with these costs, rank by rank, for one
bucket; buckets that follow overlap with it as far as ports and cores allow. (The α-β-γ model of
Thakur, Rabenseifner and Gropp, 2005, on the schedules themselves.)
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import lru_cache

from ... import config
from . import SCHEDULES
from .engine import bucket_bytes

#: The schedule that stands for MPI's own allreduce: for large vectors most libraries halve and
#: double.
LIKE_MPI = "butterfly"


@dataclass(frozen=True)
class Costs:
    """The parameters of the cost model.

    Attributes:
        latency: seconds of a message without bytes.
        per_byte: seconds of a byte in a worker's port, in one direction while the other one is
            used, too.
        adding: seconds per byte that is added up.
        servers: parameter servers, with a port of their own each; 0: there are none.
        poll: seconds until a worker has noticed that the servers are done.
    """

    latency: float
    per_byte: float
    adding: float
    servers: int = 0
    poll: float = 0.001

    def words(self) -> str:
        """Return a description of the costs."""
        return (
            f"latency {1e6 * self.latency:.0f} µs, {1e-6 / max(self.per_byte, 1e-15):.0f} MB/s each way, "
            f"adding {1e-9 / max(self.adding, 1e-15):.1f} GB/s"
        )


def predict(name: str, ranks: int, size: int, costs: Costs) -> float:
    """Return the seconds of one exchange that all ranks begin at the same time.

    Args:
        name: ps, ring, butterfly, binary-blocks or mpi.
        ranks: number of workers.
        size: bytes of the model, which each of the ranks sends.
        costs: of the network and the machines.
    """
    if ranks < 2 and name != "ps":
        return 0.0
    if name == "ps":
        return _server(ranks, size, costs)
    bucket = min(size, bucket_bytes(ranks))
    whole, wire, adding = _walk(LIKE_MPI if name == "mpi" else name, ranks, max(bucket // 4, 1), costs)
    more = max(0.0, size / max(bucket, 1) - 1)
    return whole + more * max(wire, adding, whole / config.COLLECTIVE_WINDOW)


def predictions(ranks: int, size: int, costs: Costs) -> dict[str, float]:
    """Return the predictions of all collectives."""
    return {name: predict(name, ranks, size, costs) for name in (*SCHEDULES, "mpi")}


def _server(ranks: int, size: int, costs: Costs) -> float:
    """Return the seconds of a push and a pull.

    A server's port carries its share of all models, a worker's port one model, each way.
    """
    share = size * max(ranks / max(costs.servers, 1), 1.0)
    adding = costs.adding * size * ranks / max(costs.servers, 1)
    push = max(share * costs.per_byte, adding)
    return push + share * costs.per_byte + 4 * costs.latency + costs.poll


@lru_cache(maxsize=512)
def _walk(name: str, ranks: int, values: int, costs: Costs) -> tuple[float, float, float]:
    """Walk the schedule of one bucket of that many float32 values.

    Returns:
        The seconds in all, those in the busiest port, and those of the busiest rank's adding.
    """
    steps = [deque(SCHEDULES[name](rank, ranks, values)) for rank in range(ranks)]
    clock, sending, receiving = ([0.0] * ranks for _ in range(3))
    wire_out, wire_in, adding = ([0.0] * ranks for _ in range(3))
    ways: dict[tuple[int, int], deque[float]] = defaultdict(deque)
    posted = [False] * ranks
    left = set(range(ranks))
    while left:
        for rank in sorted(left):
            if not steps[rank]:
                left.discard(rank)
                continue
            step = steps[rank][0]
            if not posted[rank]:
                posted[rank] = True
                for move in step.sends:
                    carried = 4 * move.size * costs.per_byte
                    sending[rank] = max(sending[rank], clock[rank]) + carried
                    wire_out[rank] += carried
                    ways[rank, move.peer].append(sending[rank] + costs.latency)
            if any(not ways[move.peer, rank] for move in step.receives):
                continue
            for move in step.receives:
                carried = 4 * move.size * costs.per_byte
                there = max(ways[move.peer, rank].popleft(), receiving[rank] + carried)
                receiving[rank] = there
                wire_in[rank] += carried
                added = 4 * move.size * costs.adding if step.adds else 0.0
                adding[rank] += added
                clock[rank] = max(clock[rank], there) + added
            clock[rank] = max(clock[rank], sending[rank])
            steps[rank].popleft()
            posted[rank] = False
    return max(clock), max(*wire_out, *wire_in), max(adding)
