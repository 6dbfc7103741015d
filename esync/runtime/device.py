"""Clock and device of a worker: how long an iteration takes, padded where it stands for a slower device."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from .straggler_injection import COMPUTE, Straggler, StragglerEvent

#: Seconds that an emulated iteration keeps for its computing, before any other wait is put ahead of
#: it.
KEPT_FOR_COMPUTING = 0.5


class Device(Protocol):
    """Interface between algorithms and time."""

    def begin_run(self, elapsed: float) -> None:
        """The run begins, or has lasted so many seconds by now: its clock is that of what was planned for it."""
        ...

    def now(self) -> float:
        """Return the seconds of a clock that never jumps; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that time pass."""
        ...

    def begin_iteration(self) -> None:
        """An iteration begins: what follows, loading the batch included, is the device's work."""
        ...

    def stagger(self) -> None:
        """Called before the work of an iteration: a device may let time pass that the iteration takes anyway."""
        return

    def end_iteration(self) -> float:
        """Wait until the device has done the work of the iteration; the seconds that the iteration took."""
        ...

    def wait_for(self, work: Callable[[], None]) -> None:
        """From now on `work` waits for the work of an iteration, where more is under way than that: exchanges."""
        return


class RealDevice(Device):
    """A real clock and MXNet's default device.

    Args:
        step_time: seconds of one iteration on the slower device that this one stands for; None for
            none.
        straggler_events: when this worker is a straggler on purpose.

    Attributes:
        straggler: tells how much longer things take.
        iterations: how many have ended.
        overruns: how many of them took longer than step_time by themselves: an emulated figure is
            not valid when there are many.
    """

    def __init__(self, step_time: float | None = None, straggler_events: Sequence[StragglerEvent] = ()) -> None:
        from .mxnet_import import mx

        self._wait_for_device = mx.nd.waitall
        self.straggler = Straggler(straggler_events, self.now)
        self.step_time = step_time
        self.iterations = 0
        self.overruns = 0
        self._begun = self.now()

    def begin_run(self, elapsed: float) -> None:
        """See `Device`."""
        self.straggler.begin(elapsed)

    def now(self) -> float:
        """time.perf_counter()."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """time.sleep()."""
        time.sleep(seconds)

    def begin_iteration(self) -> None:
        """Note the time."""
        self._begun = self.now()

    def stagger(self) -> None:
        """On a slower device that this one stands for, let part of its spare time pass before the computing.

        Where several are emulated on the same cores, all begin a round at the same moment: then the
        fast ones, which have no time to spare, compute first. How long the iteration lasts does not
        change.
        """
        if self.step_time is not None:
            ahead = max(0.0, (self.step_time - KEPT_FOR_COMPUTING) / 2)
            self.sleep(max(0.0, self._begun + ahead - self.now()))

    def wait_for(self, work: Callable[[], None]) -> None:
        """Instead of for all that MXNet's engine has to do."""
        self._wait_for_device = work

    def end_iteration(self) -> float:
        """Wait for MXNet's engine, then for the rest of step_time, and as long as a straggler takes on top."""
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
