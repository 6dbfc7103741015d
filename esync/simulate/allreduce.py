"""Allreduce in virtual time: its schedule's messages over the modelled network, without values.

Every rank performs its steps as the real one does: the messages of a step leave together, and the
next step begins when all of them have arrived and the received values have been added. Several
buckets are in transit at the same time.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from .. import config
from ..exchange.collectives import LIKE_MPI, SCHEDULES, Move, ScheduleStep
from .engine import SimulationEngine
from .network import Network

#: Return the steps of all ranks on one bucket.
_schedules = lru_cache(maxsize=64)(
    lambda name, ranks, values: [SCHEDULES[name](rank, ranks, values) for rank in range(ranks)]
)


class Allreduce:
    """One sum over all ranks.

    Args:
        engine: the simulation's engine.
        network: the network between the hosts.
        hosts: each rank's host.
        name: the collective's name.
        buckets: number of float32 values in each bucket, in order.
        finished: called, from an event, with each rank that has updated all buckets.
        byte_time: seconds of a rank per byte of a bucket, to read the values, run the rule and write the model.
    """

    def __init__(
        self,
        engine: SimulationEngine,
        network: Network,
        hosts: Sequence[str],
        name: str,
        buckets: Sequence[int],
        finished: Callable[[int], None],
        byte_time: float = 0.0,
    ) -> None:
        self.byte_time = byte_time
        self.engine, self.network, self.hosts = engine, network, hosts
        self._name = LIKE_MPI if name == "mpi" else name
        self._buckets, self._finished = [size for size in buckets if size], finished
        self._next = [0] * len(hosts)
        self._running = [0] * len(hosts)
        self._bucket_runs: dict[tuple[int, int], _Run] = {}
        self.arrived: Counter[tuple[int, int, int]] = Counter()  # bucket, from, to
        self.core_free = [0.0] * len(hosts)
        self.sent = [0.0] * len(hosts)
        self.received = [0.0] * len(hosts)

    def begin(self, rank: int, at: float) -> None:
        """Let a rank begin at the given time."""
        self.engine.call_at(at, self._continue, rank)

    def _continue(self, rank: int) -> None:
        while self._running[rank] < config.COLLECTIVE_WINDOW and self._next[rank] < len(self._buckets):
            bucket = self._next[rank]
            self._next[rank] += 1
            self._running[rank] += 1
            steps = _schedules(self._name, len(self.hosts), self._buckets[bucket])[rank]
            run = self._bucket_runs[bucket, rank] = _Run(self, bucket, rank, steps)
            run.begin_step()
        if not self._running[rank]:
            self._finished(rank)

    def occupy(self, rank: int, seconds: float, then: Callable[..., None], *arguments: int) -> None:
        """Occupy a rank's core, once it is free, and call a function after that."""
        end = max(self.engine.time, self.core_free[rank]) + seconds
        self.core_free[rank] = end
        self.engine.call_at(end, then, *arguments)

    def summed(self, bucket: int, rank: int) -> None:
        """Record that a rank has the sum of a bucket, whose values it updates next."""
        self.occupy(rank, 4 * self._buckets[bucket] * self.byte_time, self._updated, bucket, rank)

    def _updated(self, bucket: int, rank: int) -> None:
        del self._bucket_runs[bucket, rank]
        self._running[rank] -= 1
        self._continue(rank)

    def deliver(self, bucket: int, source: int, target: int, held_by_sender: bool) -> None:
        """Record that a message has arrived, and resume the ranks that waited for it.

        `held_by_sender` is whether its sender had to keep the values until then.
        """
        self.arrived[bucket, source, target] += 1
        for rank in (source, target) if held_by_sender else (target,):
            run = self._bucket_runs.get((bucket, rank))
            if run is not None:
                run.advance(rank == source)


class _Run:
    """One rank's progress through the steps of one bucket."""

    __slots__ = ("_at", "_leaving", "_reduce", "_steps", "bucket", "rank", "waiting")

    def __init__(self, reduce: Allreduce, bucket: int, rank: int, steps: list[ScheduleStep]) -> None:
        self._reduce, self.bucket, self.rank, self._steps = reduce, bucket, rank, steps
        self._at, self._leaving, self.waiting = 0, 0, False

    def begin_step(self) -> None:
        reduce, rank = self._reduce, self.rank
        while self._at < len(self._steps) and not (self._steps[self._at].sends or self._steps[self._at].receives):
            self._at += 1
        if self._at == len(self._steps):
            reduce.summed(self.bucket, rank)
            return
        step = self._steps[self._at]
        self._leaving, self.waiting = sum(self._kept(move) for move in step.sends), True
        at = reduce.engine.time + config.SIMULATE_MPI_MESSAGE_TIME
        for move in step.sends:
            size = 4.0 * move.size + config.SIMULATE_MPI_MESSAGE_BYTES
            reduce.sent[rank] += size
            reduce.received[move.peer] += size
            ends = reduce.hosts[rank], reduce.hosts[move.peer]
            reduce.network.send(*ends, size, self._arrival(move), None, at)
        self.advance(False)

    @staticmethod
    def _kept(move: Move) -> bool:
        """Return whether the sender must keep the values until they have left; MPI copies small messages."""
        return 4 * move.size > config.SIMULATE_MPI_EAGER

    def _arrival(self, move: Move) -> Callable[[], None]:
        return lambda: self._reduce.deliver(self.bucket, self.rank, move.peer, self._kept(move))

    def advance(self, sent: bool) -> None:
        """Begin the next step if this one is complete.

        Called when the step begins, and when a message has left (`sent`) or arrived.
        """
        self._leaving -= sent
        if not self.waiting or self._leaving:
            return
        reduce, step, arrived = self._reduce, self._steps[self._at], self._reduce.arrived
        ways = [(self.bucket, move.peer, self.rank) for move in step.receives]
        if not all(arrived[way] for way in ways):
            return
        for way in ways:
            arrived[way] -= 1
        self.waiting = False
        self._at += 1
        if step.adds and step.receives:
            seconds = 4 * sum(move.size for move in step.receives) * config.SIMULATE_ADDING
            reduce.occupy(self.rank, seconds, self.begin_step)
        else:
            self.begin_step()
