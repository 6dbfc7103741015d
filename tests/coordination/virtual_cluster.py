"""An event simulation that drives a real Coordinator in virtual time: devices of given speeds, no network."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from esync.coordination.coordinator import Coordinator


@dataclass
class Round:
    """What one round looked like; lists are indexed by rank."""

    iterations: list[int]
    waits: list[float]  # seconds from a device's READY to the last device's READY


@dataclass
class VirtualCluster:
    """Devices that iterate, ask, exchange and reset.

    `step` gives the seconds of one iteration from (rank, speed); `lateness` how much later than the end of the
    exchange each rank begins the next round; `clock_skew` what each rank's wall clock is off.
    """

    coordinator: Coordinator
    speeds: list[float]
    exchange: float = 0.05
    step: Callable[[int, float], float] = lambda rank, speed: speed
    lateness: Callable[[int, int], float] = lambda round, rank: 0.0
    clock_skew: list[float] = field(default_factory=list)
    now: float = 0.0

    def run(self, rounds: int) -> list[Round]:
        return [self._round(number) for number in range(1, rounds + 1)]

    def _round(self, number: int) -> Round:
        ranks = range(len(self.speeds))
        skew = self.clock_skew or [0.0] * len(self.speeds)
        done, ready = [0] * len(ranks), {}
        # (time, rank, iterations done, seconds of the newest one): the questions to come
        events = [(self.now + self.lateness(number, rank), rank, -1, self.speeds[rank]) for rank in ranks]
        heapq.heapify(events)
        while events:
            now, rank, k, took = heapq.heappop(events)
            if k < 0:
                if number > 1:
                    self.coordinator.reset(rank, number, now, te=1e9 + now + skew[rank])
                k = 0
            if self.coordinator.apply(rank, k, took, now, te=1e9 + now + skew[rank], round=number):
                ready[rank] = now
                done[rank] = k
            else:
                took = self.step(rank, self.speeds[rank])
                heapq.heappush(events, (now + took, rank, k + 1, took))
        self.now = max(ready.values()) + self.exchange
        return Round(done, [max(ready.values()) - ready[rank] for rank in ranks])
