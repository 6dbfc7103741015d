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
        latency: seconds in one direction.
        round_trip: seconds of a poll of the server's status.
    """

    latency: float
    round_trip: float


class RoundwiseWorker:
    """A worker; times are seconds of virtual time.

    Args:
        model: the worker's model.
        seed: seed of the job.
        latency: latency to the state server.
        ways: routes to the parameter servers.

    Attributes:
        sums: its totals over all rounds.
        iterations: local iterations so far in this round.
        mean: mean seconds of the iterations since its newest query.
        called: when its newest call to the state server began.
        free_until: end of its lease, before which it sends no query.
        round_trip: seconds of its newest query; None before the first.
        waited: total time of its waits for the state server.
        asked: number of queries and other calls to the state server so far.
        computing: total time of its iterations.
        carrier: the worker that sends its payload: itself, or another one on its host.
        begun: when its exchange began.
        sent: when its payload has left, or is in memory for the carrier; it polls from then on.
        held: time from its payload to the last payload that its carrier sums.
        wait: time from its commit to the last one of the round.
        noticed: when it learns that the servers have used its payload.
        polls: polls of the parameter servers' status so far.
        carried: payloads that it has sent so far.
        fetched: models that it has fetched from the servers so far.
    """

    __slots__ = (
        "asked",
        "begun",
        "called",
        "carried",
        "carrier",
        "computing",
        "fetched",
        "free_until",
        "held",
        "iterations",
        "latency",
        "mean",
        "noticed",
        "polls",
        "rank",
        "round_trip",
        "sent",
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
        self.carrier = self
        self.begun = self.sent = self.held = self.wait = self.noticed = 0.0
        self.asked = self.polls = self.carried = self.fetched = 0

    def compute_until_question(self, now: float) -> float:
        """Do iterations until the next query is due, like `ESync.step`; return when they end."""
        workload, until = self.workload, self.free_until
        count, seconds = 0, 0.0
        while True:
            if now < until:
                durations, ended = workload.several(now, math.inf, until)
                if durations:
                    count += len(durations)
                    self.computing += ended - now
                    begun = now
                    now += ended - now  # with the same rounding as the clocks of tasks
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
        """Do a fixed number of iterations, after which the exchange begins."""
        if iterations > 1:
            _, ended = self.workload.several(now, iterations - 1, math.inf)
            self.computing += ended - now
            now += ended - now
        last = self.workload.one(now) - now
        self.computing += last
        self.begun = now + last
        self.iterations = iterations

    def end_round(self, arrived: float) -> None:
        """Count the round that ends with the arrival of the new model."""
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
    """Bytes over a worker's connections to the parameter servers, and its polls."""

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
    """Totals of a worker, which replace its world in `result`."""

    simulated: ComputingTime
    connections: tuple[ConnectionTraffic, ...]
    questions: tuple[StateServerCalls, ...]

    @classmethod
    def of(cls, worker: RoundwiseWorker, sent: float, received: float) -> "WorkerTotals":
        """Return the totals of a worker.

        `sent` and `received` are its bytes without calls to the state server.
        """
        request, reply = config.SIMULATE_CALL_BYTES
        calls = (StateServerCalls(worker.waited, worker.asked * request, worker.asked * reply),) if worker.asked else ()
        return cls(ComputingTime(worker.computing), (ConnectionTraffic(sent, received, worker.polls),), calls)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received."""
        lines: list[ConnectionTraffic | StateServerCalls] = [*self.connections, *self.questions]
        return round(sum(line.sent for line in lines)), round(sum(line.received for line in lines))
