"""Clock and device of a worker: how long an iteration takes, padded to emulate a slower one."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from typing_extensions import override

from .straggler_injection import COMPUTE, Straggler, StragglerEvent

#: Seconds of an emulated iteration that are kept for computing when it waits beforehand.
KEPT_FOR_COMPUTING = 0.5


class Device(Protocol):
    """The interface between algorithms and time."""

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
        """Begin an iteration: what follows, including loading the batch, is the device's work."""
        ...

    def stagger(self) -> None:
        """Wait before the work of an iteration.

        A device may let time pass here that the iteration takes anyway.
        """
        return

    def end_iteration(self) -> float:
        """Wait until the iteration's work is done; return the seconds that the iteration took."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Leave the time of the body of a with statement out of the iteration."""
        return nullcontext()

    def wait_for(self, work: Callable[[], None]) -> None:
        """Have `work` wait for an iteration's work, because other work (exchanges) goes on, too."""
        return


class RealDevice(Device):
    """A real clock, and MXNet's default device.

    Args:
        step_time: seconds of one iteration on the slower device that is emulated; None if none is.
        straggler_events: when this worker is slowed down on purpose.

    Attributes:
        straggler: the delays that are injected on purpose.
        iterations: number of iterations so far.
        overruns: number of iterations that took longer than step_time by themselves. Where there
            are many, figures of the emulated device are not valid.
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
        """Note the time at which an iteration begins."""
        self._begun = self.now()

    def stagger(self) -> None:
        """Let part of an emulated device's spare time pass before the computing.

        Several devices that are emulated on the same cores begin a round at the same moment. This
        wait lets the fast ones, which have no time to spare, compute first. The duration of the
        iteration does not change.
        """
        if self.step_time is not None:
            ahead = max(0.0, (self.step_time - KEPT_FOR_COMPUTING) / 2)
            self.sleep(max(0.0, self._begun + ahead - self.now()))

    def wait_for(self, work: Callable[[], None]) -> None:
        """Wait for `work` instead of everything that MXNet's engine has to do."""
        self._wait_for_device = work

    def end_iteration(self) -> float:
        """Wait for MXNet's engine, the rest of step_time, and injected delays."""
        self._wait_for_device()
        seconds = self.now() - self._begun
        self.iterations += 1
        if self.step_time is not None:
            self.overruns += seconds > self.step_time
            self.sleep(max(0.0, self.step_time - seconds))
            seconds = self.now() - self._begun
        if longer := self.straggler.delay(COMPUTE, self._begun):
            self.sleep(longer)
            seconds = self.now() - self._begun
        return seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See `Device`.

        What MXNet's engine has to do by then, and what the body gives it to do, is waited for.
        """
        self._wait_for_device()
        before = self.now() - self._begun
        try:
            yield
        finally:
            self._wait_for_device()
            self._begun = self.now() - before
