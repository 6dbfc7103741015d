"""The cost model, which predicts the time of an exchange by a collective.

Every message costs a latency and, per byte, time in the ports of its sender and its receiver;
additions cost time per byte. For one bucket, the schedule of a collective is evaluated with these
costs, rank by rank. Further buckets overlap with it as far as ports and cores allow. (The α-β-γ
model of Thakur, Rabenseifner and Gropp, 2005, on the schedules themselves.)
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import lru_cache

from ... import config
from . import SCHEDULES
from .transport import bucket_bytes

#: The schedule that represents MPI's allreduce: most libraries use halving and doubling for large
#: vectors.
LIKE_MPI = "butterfly"


@dataclass(frozen=True)
class Costs:
    """The parameters of the cost model.

    Attributes:
        latency: seconds of an empty message.
        per_byte: seconds per byte in a worker's port, in one direction while both are in use.
        adding: seconds per byte of additions.
    """

    latency: float
    per_byte: float
    adding: float

    def description(self) -> str:
        """Return a description of the costs."""
        return (
            f"latency {1e6 * self.latency:.0f} µs, {1e-6 / max(self.per_byte, 1e-15):.0f} MB/s each way, "
            f"adding {1e-9 / max(self.adding, 1e-15):.1f} GB/s"
        )


def predict(name: str, ranks: int, size: int, costs: Costs) -> float:
    """Return the seconds of one exchange that all ranks start at the same time.

    Args:
        name: ring, butterfly, binary-blocks or mpi.
        ranks: number of workers.
        size: bytes of the model.
        costs: of the network and the machines.
    """
    if ranks < 2:
        return 0.0
    bucket = min(size, bucket_bytes(ranks))
    seconds, wire, adding = _walk(LIKE_MPI if name == "mpi" else name, ranks, max(bucket // 4, 1), costs)
    more = max(0.0, size / max(bucket, 1) - 1)
    return seconds + more * max(wire, adding, seconds / config.COLLECTIVE_WINDOW)


def predictions(ranks: int, size: int, costs: Costs) -> dict[str, float]:
    """Return the predictions of all collectives."""
    return {name: predict(name, ranks, size, costs) for name in (*SCHEDULES, "mpi")}


@lru_cache(maxsize=512)
def _walk(name: str, ranks: int, values: int, costs: Costs) -> tuple[float, float, float]:
    """Evaluate the schedule of one bucket of that many float32 values.

    Returns:
        The total seconds, those of the busiest port, and those of the busiest rank's additions.
    """
    steps = [deque(SCHEDULES[name](rank, ranks, values)) for rank in range(ranks)]
    clock, sending, receiving = ([0.0] * ranks for _ in range(3))
    wire_out, wire_in, adding = ([0.0] * ranks for _ in range(3))
    ways: dict[tuple[int, int], deque[float]] = defaultdict(deque)
    posted = [False] * ranks
    unfinished = set(range(ranks))
    while unfinished:
        for rank in sorted(unfinished):
            if not steps[rank]:
                unfinished.discard(rank)
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
                arrived = max(ways[move.peer, rank].popleft(), receiving[rank] + carried)
                receiving[rank] = arrived
                wire_in[rank] += carried
                added = 4 * move.size * costs.adding if step.adds else 0.0
                adding[rank] += added
                clock[rank] = max(clock[rank], arrived) + added
            clock[rank] = max(clock[rank], sending[rank])
            steps[rank].popleft()
            posted[rank] = False
    return max(clock), max(*wire_out, *wire_in), max(adding)
