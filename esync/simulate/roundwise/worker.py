"""A worker that is simulated round by round: its device, its clock and its totals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ... import config
from ..devices import Workload
from ..metrics import WorkerMetrics
from ..world import WorkerModel


@dataclass(frozen=True)
class Route:
    """Route from a worker to a parameter server and back.

    Attributes:
        latency: seconds.
        round_trip: seconds of a look at the status.
    """

    latency: float
    round_trip: float


class RoundwiseWorker:
    """A worker; all times are seconds of virtual time.

    Args:
        model: which one.
        seed: of the job.
        latency: to the state server.
        ways: to each parameter server.

    Attributes:
        sums: of its rounds.
        iterations: local iterations of the round under way.
        mean: seconds of those since its newest question.
        called: when its newest call to the state server began.
        free_until: no question before that: the end of a lease.
        round_trip: of its newest question; None before the first.
        waited: for the state server, in all.
        asked: questions and other calls to the state server so far.
        computing: in all.
        begun: when its exchange began.
        wait: from its commit to the last one of the round.
        noticed: when it learns that the servers have used its payload.
        polls: so far.
    """

    __slots__ = (
        "asked",
        "begun",
        "called",
        "computing",
        "free_until",
        "iterations",
        "latency",
        "mean",
        "noticed",
        "polls",
        "rank",
        "round_trip",
        "sums",
        "wait",
        "waited",
        "ways",
        "workload",
    )

    def __init__(self, model: WorkerModel, seed: int, latency: float, ways: Sequence[Route]) -> None:
        self.rank, self.latency, self.ways = model.rank, latency, ways
        self.workload = Workload(model.device, (seed, model.rank, 0))
        self.sums = WorkerMetrics(model)
        self.iterations = 0
        self.mean = self.called = self.waited = self.computing = 0.0
        self.free_until = -math.inf
        self.round_trip: float | None = None
        self.begun = self.wait = self.noticed = 0.0
        self.asked = self.polls = 0

    def compute_until_question(self, now: float) -> float:
        """Iterations until the next question is due, as `ESync.step` has it; when they end."""
        workload, until = self.workload, self.free_until
        count, seconds = 0, 0.0
        while True:
            if now < until:
                taken, ended = workload.several(now, math.inf, until)
                if taken:
                    count += len(taken)
                    self.computing += ended - now
                    begun = now
                    now += ended - now  # as clocks of tasks move, also in what is rounded
                    seconds += now - begun
            last = workload.one(now) - now
            count += 1
            seconds += last
            self.computing += last
            now += last
            if now >= until:
                break
        self.iterations += count
        self.mean = seconds / count
        self.called = now
        return now

    def compute(self, iterations: int, now: float) -> None:
        """A fixed number of iterations, after which it exchanges."""
        if iterations > 1:
            _, ended = self.workload.several(now, iterations - 1, math.inf)
            self.computing += ended - now
            now += ended - now
        last = self.workload.one(now) - now
        self.computing += last
        self.begun = now + last
        self.iterations = iterations

    def end_round(self, arrived: float) -> None:
        """The new model has arrived."""
        sums = self.sums
        sums.rounds += 1
        sums.iterations += self.iterations
        sums.ended = arrived
        sums.waits += self.wait
        if self.wait > sums.longest_wait:
            sums.longest_wait = self.wait
        transfer = arrived - self.begun - self.wait
        if transfer > 0:
            sums.transfers += transfer
        self.iterations = 0


@dataclass(frozen=True)
class ConnectionTraffic:
    """Bytes over a worker's connections to the parameter servers."""

    sent: float
    received: float
    polls: int


@dataclass(frozen=True)
class StateServerCalls:
    """Seconds and bytes of a worker's calls to the state server."""

    waited: float
    sent: int
    received: int


@dataclass(frozen=True)
class ComputingTime:
    """Seconds of a worker's iterations."""

    computing: float


@dataclass(frozen=True)
class WorkerTotals:
    """Totals of a worker, in the place of its world in `result`."""

    simulated: ComputingTime
    connections: tuple[ConnectionTraffic, ...]
    questions: tuple[StateServerCalls, ...]

    @classmethod
    def of(cls, worker: RoundwiseWorker, sent: float, received: float) -> "WorkerTotals":
        """That of a worker that has sent and received so many bytes besides its calls to the state server."""
        there, back = config.SIMULATE_CALL_BYTES
        calls = (StateServerCalls(worker.waited, worker.asked * there, worker.asked * back),) if worker.asked else ()
        return cls(ComputingTime(worker.computing), (ConnectionTraffic(sent, received, worker.polls),), calls)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received."""
        lines: list[ConnectionTraffic | StateServerCalls] = [*self.connections, *self.questions]
        return round(sum(each.sent for each in lines)), round(sum(each.received for each in lines))
