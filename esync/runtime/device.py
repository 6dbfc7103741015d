"""Clock and device of a worker: how long an iteration takes, padded to emulate a slower one."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from typing_extensions import override

from .straggler_injection import COMPUTE, Straggler, StragglerEvent

#: Seconds of an emulated iteration that are reserved for computing if it waits first.
RESERVED_FOR_COMPUTING = 0.5


class Device(Protocol):
    """The interface between algorithms and time.

    Attributes:
        time_factor: factor of the seconds of an iteration on an emulated or simulated device, for a
            batch of another size.
    """

    time_factor: float = 1.0

    def begin_run(self, elapsed: float) -> None:
        """Set the clock of injected stragglers: the run has lasted `elapsed` seconds."""
        ...

    def now(self) -> float:
        """Return the seconds of a clock that never jumps; only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def begin_iteration(self) -> None:
        """Begin an iteration, which includes loading the batch."""
        ...

    def wait_for_turn(self) -> None:
        """Spend part of an iteration's spare time before its work."""
        return

    def end_iteration(self) -> float:
        """Wait until the iteration's work is done; return its duration in seconds."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Exclude the time of the body of a `with` statement from the iteration."""
        return nullcontext()

    def wait_for(self, work: Callable[[], None]) -> None:
        """Let `work` wait for an iteration's work, because other work (exchanges) is in progress, too."""
        return


class RealDevice(Device):
    """A real clock, and MXNet's default device.

    Args:
        step_time: seconds per iteration of the emulated slower device; None for no emulation.
        straggler_events: periods in which this worker is slowed down on purpose.

    Attributes:
        straggler: delays to inject.
        iterations: number of iterations so far.
        overruns: number of iterations whose real work took longer than step_time. If there are many,
            figures of the emulated device are not valid.
    """

    def __init__(self, step_time: float | None = None, straggler_events: Sequence[StragglerEvent] = ()) -> None:
        from .mxnet_import import mx

        self._wait_for_device = mx.nd.waitall
        self.straggler = Straggler(straggler_events, self.now)
        self.step_time = step_time
        self.iterations = 0
        self.overruns = 0
        self._begun = self.now()

    @override
    def begin_run(self, elapsed: float) -> None:
        self.straggler.begin(elapsed)

    def now(self) -> float:
        """Return `time.perf_counter()`."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Call `time.sleep`."""
        time.sleep(seconds)

    def begin_iteration(self) -> None:
        """Record the time at which an iteration begins."""
        self._begun = self.now()

    def wait_for_turn(self) -> None:
        """Spend part of an emulated device's spare time before the computing.

        Devices that are emulated on the same cores begin a round at the same moment. This wait lets the
        fast ones, which have no spare time, compute first. The duration of the iteration is unchanged.
        """
        if self._emulated is not None:
            ahead = max(0.0, (self._emulated - RESERVED_FOR_COMPUTING) / 2)
            self.sleep(max(0.0, self._begun + ahead - self.now()))

    def wait_for(self, work: Callable[[], None]) -> None:
        """Wait for `work` instead of all work of MXNet's engine."""
        self._wait_for_device = work

    def end_iteration(self) -> float:
        """Wait for MXNet's engine, the rest of step_time, and injected delays."""
        self._wait_for_device()
        seconds = self.now() - self._begun
        self.iterations += 1
        if self._emulated is not None:
            self.overruns += seconds > self._emulated
            self.sleep(max(0.0, self._emulated - seconds))
            seconds = self.now() - self._begun
        if longer := self.straggler.delay(COMPUTE, self._begun):
            self.sleep(longer)
            seconds = self.now() - self._begun
        return seconds

    @property
    def _emulated(self) -> float | None:
        """Seconds that this iteration takes on the emulated device."""
        return None if self.step_time is None else self.step_time * self.time_factor

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See `Device`.

        Waits for the work of MXNet's engine before and after the body.
        """
        self._wait_for_device()
        before = self.now() - self._begun
        try:
            yield
        finally:
            self._wait_for_device()
            self._begun = self.now() - before
