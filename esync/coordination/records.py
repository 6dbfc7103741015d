"""Records of the workers: smoothed speeds, delays, fluctuations."""

import math
from dataclasses import dataclass, field

from .. import config


@dataclass(slots=True)
class Record:
    """The record of one worker. Times are seconds of the coordinator's clock."""

    rank: int
    round: int = 1  # the newest round whose model it holds
    asked: int = -1  # the newest local iteration of this round that it asked after; -1 before its first question
    ready: bool = False
    capability: float = 0.0  # smoothed seconds per iteration; 0 while unknown
    measured: bool = False  # the capability comes from iterations, not only from the trial before the first
    finished: float = 0.0  # the coordinator's time at which its last iteration, or its last exchange, had ended
    te: float = 0.0  # the same by the worker's own clock: shown, never used
    shortest: float = 0.0  # seconds that hardly any iteration falls below; 0 while unknown
    jitter: float = 0.0  # smoothed seconds by which an iteration differs from the capability
    round_trip: float = 0.0  # smoothed seconds of a question and its answer, as the worker sees them; 0 while unknown
    round_trip_jitter: float = 0.0  # smoothed seconds by which one differs from that
    held_up: float = 0.0  # smoothed seconds per iteration that it loses to waiting for answers
    exchanges: list[float] = field(default_factory=list)  # seconds of the newest ones, without the wait for others
    compression: str = ""  # with which they were measured, where the state server chooses it

    @property
    def speed_rank(self) -> float:
        """The capability, with "unknown" counted as slower than everything."""
        return self.capability or math.inf

    @property
    def exchange(self) -> float:
        """Seconds of an exchange, 0 while unknown: the shortest of the newest ones.

        Other traffic, such as the model on its way to workers that begin, only adds to the time.
        """
        return min(self.exchanges, default=0.0)

    def add_exchange(self, seconds: float, compression: str) -> None:
        """Note the seconds of an exchange, without the wait for others, and its compression."""
        before = self.exchanges if compression == self.compression else []
        self.exchanges, self.compression = [*before, seconds][-config.AUTO_WINDOW :], compression

    def add_report(self, iteration: int, capability: float, now: float, iterations: int = 1) -> None:
        """Update the record with a new question.

        Args:
            iteration: local iterations done in this round.
            capability: mean seconds of the iterations that have ended since the last question; 0
                for unknown.
            now: the coordinator's time, seconds.
            iterations: number of those iterations.
        """
        smoothing = config.CAPABILITY_SMOOTHING
        self.asked = iteration
        self.finished = now
        if capability == 0:
            return
        if iteration == 0:
            # No iteration has ended since the last question. The time is that of the trial before
            # the first iteration, and is replaced by that of the first iteration.
            if not self.measured:
                self.capability = capability
        elif self.measured:
            # A mean of n iterations fluctuates by 1/√n of a single one; it has the weight of n equal
            # iterations.
            difference = abs(capability - self.capability) * math.sqrt(iterations)
            self.jitter += smoothing * (difference - self.jitter)
            self.capability += (1 - (1 - smoothing) ** iterations) * (capability - self.capability)
            forgotten = self.shortest + config.LEASE_FORGETTING * (self.capability - self.shortest)
            self.shortest = min(capability, forgotten)
        else:
            self.capability = capability
            self.shortest = config.LEASE_SHORTEST * capability
            self.measured = True

    def delayed(self, iteration: int, capability: float, now: float, iterations: int, round_trip: float) -> None:
        """Update the network delays; called before `add_report`, with the same arguments.

        `round_trip` is the seconds of the worker's newest answered question.
        """
        smoothing = config.CAPABILITY_SMOOTHING
        if self.round_trip:
            self.round_trip_jitter += smoothing * (abs(round_trip - self.round_trip) - self.round_trip_jitter)
            self.round_trip += smoothing * (round_trip - self.round_trip)
        else:
            self.round_trip = round_trip
        if iteration > 0:
            # The time between messages shows whether the worker waits for answers. More than a
            # round trip has another cause.
            lost = min(max((now - self.finished) / iterations - capability, 0.0), self.round_trip)
            self.held_up += smoothing * (lost - self.held_up)
