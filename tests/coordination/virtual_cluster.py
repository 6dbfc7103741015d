"""An event simulation that drives a real Coordinator in virtual time.

It has devices of given speeds and a slow network.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from esync.coordination.coordinator import Coordinator


@dataclass
class Round:
    """What one round looked like; lists are indexed by rank."""

    iterations: list[int]
    waits: list[float]  # seconds from a device's READY to the last device's READY
    queries: list[int]
    predicted: float  # when the slowest would have ended by the coordinator's estimate, and …
    ended: float  # … when it did


@dataclass
class VirtualCluster:
    """Devices that iterate, ask, exchange and reset.

    `step` gives the seconds of one iteration from (rank, speed); `clock_skew` what each rank's wall
    clock is off. With `leases` they ask as new workers do, else as published ones; every question then takes
    `round_trip` seconds of waiting.
    """

    coordinator: Coordinator
    speeds: list[float]
    exchange: float = 0.05
    step: Callable[[int, float], float] = lambda rank, speed: speed
    clock_skew: list[float] = field(default_factory=list)
    leases: bool = False
    round_trip: Callable[[], float] = lambda: 0.0
    now: float = 0.0

    def run(self, rounds: int) -> list[Round]:
        return [self._round(number) for number in range(1, rounds + 1)]

    def _round(self, number: int) -> Round:
        ranks = range(len(self.speeds))
        devices = [_Device(rank, self.speeds[rank]) for rank in ranks]
        skew = self.clock_skew or [0.0] * len(self.speeds)
        slowest = self.speeds.index(max(self.speeds))
        predicted = ended = 0.0
        # (time, rank, iterations done, seconds of the newest one): the ends of iterations to come
        events = [(self.now, rank, -1, self.speeds[rank]) for rank in ranks]
        heapq.heapify(events)
        while events:
            now, rank, k, took = heapq.heappop(events)
            device = devices[rank]
            if k < 0:
                if number > 1:
                    self.coordinator.reset(rank, number, now, te=1e9 + now + skew[rank])
                k = 0
            if rank == slowest:
                if k == 0:
                    _, _, c, *_ = self.coordinator.snapshot()["records"][rank]
                    predicted = now + self.coordinator.slowest_iterations * (c or took)
                ended = now
            device.since.append(took)
            if now < device.free_until:
                ready, delay = False, 0.0
            else:
                delay = self.round_trip() if k else 0.0
                arrival = now + delay / 2
                if self.leases:
                    mean = sum(device.since) / len(device.since)
                    answer = self.coordinator.query(rank, number, k, mean, arrival, delay if k else None)
                    ready, device.free_until = answer.ready, now + answer.lease
                else:
                    ready = self.coordinator.query(rank, number, k, took, arrival, te=1e9 + now + skew[rank]).ready
                device.queries += 1
                device.since = []
            if ready:
                device.ready, device.iterations = now + delay, k
            else:
                took = self.step(rank, self.speeds[rank])
                heapq.heappush(events, (now + delay + took, rank, k + 1, took))
        last = max(device.ready for device in devices)
        self.now = last + self.exchange
        return Round(
            [device.iterations for device in devices],
            [last - device.ready for device in devices],
            [device.queries for device in devices],
            predicted,
            ended,
        )


@dataclass
class _Device:
    """One device in one round."""

    rank: int
    speed: float
    since: list[float] = field(default_factory=list)  # seconds of its iterations since its last question
    free_until: float = -1.0  # the end of its lease
    iterations: int = 0
    ready: float = 0.0
    queries: int = 0
