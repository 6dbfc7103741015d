"""The workers of ESync and the state server, from each RESET to the next READY.

The real coordinator decides, in the order of the arrival of calls. Each call is one event, in which
the worker's iterations until its next call are computed.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from ...coordination import ExchangeDecision
from ...coordination.coordinator import Coordinator
from ..coordination import StateServerModel
from .worker import RoundwiseWorker

_QUESTION, _RESET, _FIRST = range(3)


class StateServerQueue:
    """The queue of calls to the state server.

    Args:
        model: the state server's costs.
        leases: whether workers use leases.

    Attributes:
        questions: number of queries so far.
        events: number of calls so far.
        now: time at which the newest call arrived.
    """

    def __init__(self, model: StateServerModel, leases: bool) -> None:
        self.questions = self.events = 0
        self.now = 0.0
        self._leases, self._answer_time = leases, model.answer_time
        self._free = 0.0

    def init(
        self, first: RoundwiseWorker, workers: int, epsilon: float | None, slowest_iterations: int
    ) -> tuple[float, float]:
        """Let rank 0 begin the job.

        Returns:
            The times at which its call arrives at the state server, and the answer at rank 0.
        """
        self._coordinator = Coordinator(workers, epsilon, slowest_iterations)
        arrived = first.latency
        self._free = max(self._free, arrived) + self._answer_time
        self.events += 1
        first.asked += 1
        back = arrived + (self._free - arrived + first.latency)
        first.waited += back
        return arrived, back

    def run(self, round: int, begun: Iterable[tuple[float, RoundwiseWorker]]) -> list[RoundwiseWorker]:
        """Run a round; return the workers in the order in which they get READY.

        Args:
            round: number of the round, from 1.
            begun: time at which a worker has the model of this round, and the worker, for each one.
        """
        coordinator, leases, answer_time, free = self._coordinator, self._leases, self._answer_time, self._free
        kind = _RESET if round > 1 else _FIRST
        calls = [(time + worker.latency, number, kind, worker) for number, (time, worker) in enumerate(begun)]
        for time, worker in begun:
            worker.called = time
        heapify(calls)
        number = len(calls)
        ready: list[RoundwiseWorker] = []
        while calls:
            arrived, _, kind, worker = calls[0]
            free = (arrived if arrived > free else free) + answer_time
            back = arrived + (free - arrived + worker.latency)
            worker.waited += back - worker.called
            worker.asked += 1
            if kind == _QUESTION:
                if leases:
                    decision = coordinator.query(
                        worker.rank, round, worker.iterations, worker.mean, free, worker.round_trip
                    )
                else:
                    decision = ExchangeDecision(
                        coordinator.apply(worker.rank, worker.iterations, worker.mean, free, round=round)
                    )
                worker.round_trip = back - worker.called
                if decision.ready:
                    worker.begun = back
                    ready.append(worker)
                    heappop(calls)
                    continue
                worker.free_until = worker.called + decision.lease
            elif kind == _RESET:
                coordinator.reset(worker.rank, round, free)
                worker.sums.ended = back
            else:
                capability = worker.sums.worker.device.mean
                if leases:
                    coordinator.query(worker.rank, round, 0, capability, free, None)
                else:
                    coordinator.apply(worker.rank, 0, capability, free, round=round)
                worker.round_trip = back - worker.called
                worker.sums.began = back
            asks = worker.compute_until_question(back)
            heapreplace(calls, (asks + worker.latency, number, _QUESTION, worker))
            number += 1
        self._free = free
        self.events += number
        self.questions += number - (len(ready) if round > 1 else 0)
        self.now = arrived
        return ready
