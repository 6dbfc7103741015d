"""Simulation engine: events in virtual time, and tasks (greenlets) that wait for them.

A task is an ordinary function that may block. Where the real program would block, the task switches
to the engine, which processes events in virtual time and switches back when the awaited one has
happened. Only one task runs at a time, and only these switches pass control, so a run is
deterministic.

Each task has its own clock, which may be ahead of the engine's: computing and sleeping only advance
that clock. The engine catches up (`settle`) before the task interacts with others, so that all
iterations between two messages are a single event.
"""

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, TypeVar

import greenlet  # type: ignore[import-untyped]

from ..runtime.errors import DeadlockError
from ..runtime.futures import Future

T = TypeVar("T")

#: Number of new objects until the next garbage collection, suited to thousands of workers.
_GC_THRESHOLD = 100_000


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely, and not among existing objects, which saves a fifth of a simulation's time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class CrashError(BaseException):
    """Raised in a task whose machine has crashed. Like KeyboardInterrupt, it is not an Exception."""


class Event:
    """Something that happens once, and that tasks can wait for.

    Attributes:
        triggered: whether `succeed` has been called.
        processed: whether it has happened, so that nobody waits for it any more.
    """

    def __init__(self, engine: "SimulationEngine") -> None:
        self._engine = engine
        self.triggered = self.processed = False
        self.wakers: list[Callable[[Any], None]] = []

    def succeed(self) -> None:
        """Let it happen, now."""
        self.triggered = True
        self._engine.call_at(self._engine.time, self._process)

    def _process(self) -> None:
        self.processed = True
        for wake in self.wakers:
            wake(None)


class GreenletTask:
    """A thread of execution in virtual time.

    Attributes:
        name: its name in messages.
        time: its own clock in seconds, never behind the engine's while it runs.
        waits_for: description of the awaited event; "" while it runs.
        done: whether its function has returned, or it has crashed.
    """

    def __init__(self, engine: "SimulationEngine", name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.time = 0.0
        self.waits_for = "its beginning"
        self._engine = engine
        self._waits = 0
        self._greenlet = greenlet.greenlet(body, parent=engine.hub)

    @property
    def done(self) -> bool:
        """Whether the task has ended."""
        return self._greenlet.dead

    def waker(self) -> Callable[[Any], None]:
        """Return a function that ends the wait that begins now.

        It ignores its argument, and does nothing when called after the end of that wait.
        """
        self._waits += 1
        wait = self._waits

        def resume(_: Any = None) -> None:
            if self._waits == wait and not self._greenlet.dead:
                self._engine.switch_to(self, self._greenlet.switch)

        return resume

    def end_wait(self, time: float) -> None:
        """End its wait at `time`; called by the engine before it switches to the task."""
        self._waits += 1
        self.waits_for = ""
        if self.time < time:
            self.time = time

    def crash(self, time: float) -> None:
        """Raise CrashError in the task."""
        self.time = time
        with contextlib.suppress(CrashError):  # the task has not caught it
            self._greenlet.throw(CrashError())


class SimulationEngine:
    """The events and tasks of one simulation.

    Attributes:
        hub: the greenlet that has created the engine, and in which events happen; only it may `run`
            the engine.
        time: of the events' clock in seconds; no task's clock is behind it.
        events: number of events so far.
    """

    def __init__(self) -> None:
        # Time, number, which keeps the order of events at the same time, function, arguments.
        self._queue: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self.time = 0.0
        self.hub = greenlet.getcurrent()
        self._tasks: list[GreenletTask] = []
        self._current: GreenletTask | None = None
        self.events = 0

    # --- time -------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Time of the running task's clock in seconds, or of the events' clock if no task runs."""
        task = self._current
        return task.time if task is not None else self.time

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of the running task only."""
        self._running().time += seconds

    def settle(self) -> None:
        """Process all events up to the time of the running task."""
        task = self._running()
        if task.time > self.time:
            self.call_at(task.time, self.waker("its own work"), None)
            self.hub.switch()

    # --- events -----------------------------------------------------------------------------------

    def event(self) -> Event:
        """Return a new event, which happens when its `succeed` is called."""
        return Event(self)

    def call_at(self, time: float, function: Callable[..., Any], *arguments: Any) -> None:
        """Schedule a function, which must not wait, at `time`."""
        heappush(self._queue, (max(time, self.time), next(self._numbers), function, arguments))

    def wait(self, event: Event, what: str) -> None:
        """Wait for an event.

        Args:
            event: an event of this engine.
            what: description of the event and of the waiting task, for the message about a deadlock.
        """
        self.settle()
        if not event.processed:
            event.wakers.append(self.waker(what))
            self.hub.switch()

    def waker(self, what: str) -> Callable[[Any], None]:
        """Return a function that ends the wait started by the next `pause`.

        Call it from an event. See `wait` for `what`.
        """
        task = self._running()
        task.waits_for = what
        return task.waker()

    def pause(self) -> None:
        """Wait until the waker is called.

        The task's clock may be ahead of the events if the waker is not called before the clock's time.
        """
        self._running()
        self.hub.switch()

    # --- tasks ------------------------------------------------------------------------------------

    def spawn(self, name: str, body: Callable[[], None], delay: float = 0.0) -> GreenletTask:
        """Start a task `delay` seconds from now."""
        task = GreenletTask(self, name, body)
        self._tasks.append(task)
        begin = task.waker()
        self.call_at(self.now + delay, begin, None)
        return task

    def crash(self, task: GreenletTask) -> None:
        """End a task as a crash of its machine would. Call it from an event, not from a task."""
        if task.done:
            return
        self.switch_to(task, lambda: task.crash(self.time))

    def switch_to(self, task: GreenletTask, switch: Callable[[], Any]) -> None:
        """Run a task until it waits again; called from events only."""
        task.end_wait(self.time)
        self._current = task
        try:
            switch()
        finally:
            self._current = None

    def run(self) -> None:
        """Let virtual time pass until every task has ended.

        Raises:
            DeadlockError: the remaining tasks wait for events that never happen.
            Exception: a task has raised it.
        """
        with rare_collections():
            while self._queue:
                self.time, _, function, arguments = heappop(self._queue)
                function(*arguments)
                self.events += 1
        stuck = [task for task in self._tasks if not task.done]
        if stuck:
            waits = "; ".join(f"{task.name} waits for {task.waits_for}" for task in stuck[:10])
            more = f"; and {len(stuck) - 10} more" if len(stuck) > 10 else ""
            raise DeadlockError(f"deadlock at {self.time:.3f} s of virtual time: {waits}{more}")

    # --- helpers ----------------------------------------------------------------------------------

    def _running(self) -> GreenletTask:
        if self._current is None:
            raise RuntimeError("only a task can wait or let time pass; this was called from an event")
        return self._current


class VirtualFuture(Future[T]):
    """A handle that another task completes.

    Args:
        engine: the simulation's engine.
        missing: name of the result in messages.
    """

    def __init__(self, engine: SimulationEngine, missing: str) -> None:
        super().__init__()
        self._engine, self._missing, self._over = engine, missing, engine.event()

    def complete(self, value: T) -> None:
        """Set the result, and wake the task that waits for it."""
        super().complete(value)
        self._over.succeed()

    def fail(self, error: BaseException) -> None:
        """Set the error, and wake the task that waits for the result."""
        super().fail(error)
        self._over.succeed()

    def _poll(self) -> None:
        self._engine.settle()

    def _await(self) -> None:
        self._engine.wait(self._over, self._missing)


class TimedFuture(Future[T]):
    """A handle with a known result that arrives at a given time.

    Args:
        engine: the simulation's engine.
        at: second of virtual time at which the result arrives.
        value: the result.
    """

    def __init__(self, engine: SimulationEngine, at: float, value: T) -> None:
        super().__init__()
        self._engine, self._at, self._arriving = engine, at, value

    def _poll(self) -> None:
        if self._engine.now >= self._at:
            self.complete(self._arriving)

    def _await(self) -> None:
        self._engine.pass_time(max(0.0, self._at - self._engine.now))
        self.complete(self._arriving)
