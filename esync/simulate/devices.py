"""Model of a device: how long its iterations take, one after the other.

They take a fixed time, with jitter, changing speed and pauses, or times from a measured trace.

Work is measured in seconds at full speed, and done at the speed of the moment: at speed 0.5 an
iteration takes twice as long, and in a pause (speed 0) nothing is done.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from typing_extensions import override

from ..launch.simulation_schema import Period
from ..runtime.device import Device
from ..runtime.errors import ExpectedError
from ..runtime.straggler_injection import COMPUTE, Straggler, StragglerEvent
from .engine import SimulationEngine

#: Smallest factor of normal jitter, because every iteration takes time.
MIN_FACTOR = 0.1
#: Number of consecutive pauses and changes of speed without any work after which a device counts as
#: stalled.
_TURNS = 10_000
_CHUNK = 256


@dataclass(frozen=True)
class DeviceModel:
    """Model of a device.

    Attributes:
        step_time: mean seconds of an iteration at full speed.
        jitter: relative standard deviation of an iteration's work.
        distribution: normal, lognormal, uniform or exponential.
        speed: pairs (second, relative speed from then on); the speed is 1 before the first.
        pauses: when nothing is computed.
        trace: seconds of measured iterations, repeated forever, instead of step_time and jitter.
        straggler_events: when its worker is slowed down on purpose.
    """

    step_time: float
    jitter: float = 0.0
    distribution: str = "normal"
    speed: Sequence[tuple[float, float]] = ()
    pauses: Sequence[Period] = ()
    trace: Sequence[float] = field(default=())
    straggler_events: Sequence[StragglerEvent] = ()

    @property
    def mean(self) -> float:
        """Mean seconds of an iteration at full speed and without pauses."""
        return sum(self.trace) / len(self.trace) if self.trace else self.step_time

    def slowed(self, factor: float) -> "DeviceModel":
        """Return the model of a device whose iterations take `factor` times as long."""
        return replace(self, step_time=factor * self.step_time, trace=[factor * seconds for seconds in self.trace])

    def iteration_times(self, seed: Sequence[int]) -> Iterator[float]:
        """Yield the seconds of each iteration at full speed, forever."""
        if self.trace:
            while True:
                yield from self.trace
        if not self.jitter:
            while True:
                yield self.step_time
        generator = np.random.default_rng(np.random.SeedSequence(list(seed)))
        while True:
            yield from (self.step_time * _factors(generator, self.distribution, self.jitter)).tolist()


def _factors(generator: np.random.Generator, distribution: str, deviation: float) -> np.ndarray:
    """Draw positive random numbers with mean 1 and this standard deviation; see `simulation_schema.LARGEST_JITTERS`."""
    if distribution == "lognormal":
        sigma = math.sqrt(math.log1p(deviation**2))
        return generator.lognormal(-(sigma**2) / 2, sigma, _CHUNK)
    if distribution == "normal":
        return np.maximum(generator.normal(1.0, deviation, _CHUNK), MIN_FACTOR)
    if distribution == "uniform":
        half = math.sqrt(3) * deviation
        return generator.uniform(1 - half, 1 + half, _CHUNK)
    return 1 - deviation + generator.exponential(deviation, _CHUNK)


class StalledError(ExpectedError):
    """Raised when a device would practically never finish an iteration."""


class SpeedProfile:
    """Computes when work ends on a device with changing speed and pauses.

    Args:
        speed: pairs (second, relative speed from then on); the speed is 1 before the first.
        pauses: periods without work.
    """

    def __init__(self, speed: Sequence[tuple[float, float]], pauses: Sequence[Period]) -> None:
        self._from = [start for start, _ in speed]
        self._speeds = [1.0, *(rate for _, rate in speed)]
        self._pauses = tuple(pauses)
        self.steady = not speed and not pauses

    def ends(self, begun: float, work: float) -> float:
        """Return the virtual time at which work that began at `begun` is finished.

        Raises:
            StalledError: the pauses leave no time for the work.
        """
        if self.steady:
            return begun + work
        now, remaining, turn = begun, math.inf, 0
        while True:
            if turn % _TURNS == 0:
                if work > remaining * (1 - 1e-6):
                    raise StalledError(
                        f"between second {begun:g} and second {now:g} of virtual time this device got nothing done: "
                        "its pauses leave no time to compute in"
                    )
                remaining = work
            turn += 1
            index = bisect_right(self._from, now)
            until = self._from[index] if index < len(self._from) else math.inf
            speed = self._speeds[index]
            for pause in self._pauses:
                start, end = _turn(pause, now)
                if start <= now < end:
                    speed, until = 0.0, min(until, end)
                elif start > now:
                    until = min(until, start)
            if speed and now + work / speed <= until:
                return now + work / speed
            work -= (until - now) * speed
            now = until


def _turn(pause: Period, now: float) -> tuple[float, float]:
    """Return beginning and end of the pause in progress at `now`, or of the next one."""
    if pause.every is None:
        return (pause.at, pause.at + pause.lasting) if now < pause.at + pause.lasting else (math.inf, math.inf)
    turn = max(0, math.floor((now - pause.at) / pause.every))
    start = pause.at + turn * pause.every
    if now >= start + pause.lasting:
        start += pause.every
    return start, start + pause.lasting


class SimulatedDevice(Device):
    """The clock and the device of one worker in virtual time.

    Args:
        engine: the simulation's engine.
        model: how fast the device is.
        seed: seed of its jitter.

    Attributes:
        straggler: delays to inject.
        step_time: mean seconds of an iteration.
        iterations: number of iterations so far.
        computing: total seconds of the iterations.
        overruns: always 0; only emulated devices can overrun.
    """

    def __init__(self, engine: SimulationEngine, model: DeviceModel, seed: Sequence[int]) -> None:
        self._engine = engine
        self.straggler = Straggler(model.straggler_events, self.now)
        self._times = model.iteration_times(seed)
        self._pace = SpeedProfile(model.speed, model.pauses)
        self.step_time = model.mean
        self.iterations = 0
        self.computing = 0.0
        self.overruns = 0
        self._begun = 0.0
        # Begins and ends of the newest iterations, from the first that events have not caught up with.
        self._ahead: deque[tuple[float, float]] = deque()

    @override
    def begin_run(self, elapsed: float) -> None:
        self.straggler.begin(elapsed)

    def now(self) -> float:
        """Return the time of this worker's virtual clock, in seconds."""
        return self._engine.now

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._engine.pass_time(seconds)

    def begin_iteration(self) -> None:
        """Record the time at which an iteration begins."""
        self._begun = self._engine.now

    def end_iteration(self) -> float:
        """Let the time of one iteration pass, and return its seconds."""
        begun, now = self._begun, self._engine.now
        ended = self._pace.ends(begun, self.time_factor * next(self._times)) + self.straggler.delay(COMPUTE, begun)
        self._engine.pass_time(max(0.0, ended - now))
        self.iterations += 1
        self.computing += ended - begun
        while self._ahead and self._ahead[0][1] <= self._engine.time:
            self._ahead.popleft()
        self._ahead.append((begun, ended))
        return ended - begun

    def crash(self) -> None:
        """Leave out what the task, whose clock may be ahead of the events, has computed after the crash."""
        crashed_at = self._engine.time
        self.computing -= sum(max(0.0, ended - max(begun, crashed_at)) for begun, ended in self._ahead)
