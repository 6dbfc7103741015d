"""Runs several fibres at a time, in order, and waits without taking a core: it polls, with pauses that grow.

A *fibre* is a generator that yields whenever it has to wait, and says with it whether it has got on since it last did.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator

from ... import config
from .transport import Request

Fibre = Iterator[bool]


def until_done(request: Request) -> Fibre:
    """The fibre that waits for a transfer; to have come to it means to have got on."""
    got_on = True
    while not request.done():
        yield got_on
        got_on = False


class Pauses:
    """How long to wait before the next look, while nothing happens.

    MPI moves bytes only while it is asked, so right after something has happened the next look comes at once; where
    nothing has happened for longer, pauses leave the core to those who compute.

    Args:
        longest: seconds.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self.happened()

    def happened(self) -> None:
        """Something has: begin with short pauses again."""
        self._since = time.perf_counter()
        self._pause = config.COLLECTIVE_FIRST_PAUSE

    def wait(self) -> None:
        """Until the next look."""
        if time.perf_counter() - self._since < config.COLLECTIVE_SPIN:
            os.sched_yield()
            return
        time.sleep(self._pause)
        self._pause = min(self._pause * 1.5, self._longest)


class Fibres:
    """Fibres that are begun in order, at most `window` at the same time.

    Args:
        makers: each makes a fibre when it is that one's turn.
        window: how many.
    """

    def __init__(self, makers: Iterable[Callable[[], Fibre]], window: int = config.COLLECTIVE_WINDOW) -> None:
        self._makers = iter(makers)
        self._window = window
        self._running: list[Fibre] = []
        self._exhausted = False

    def advance(self) -> bool:
        """Let each of them go on until it has to wait; whether any has got on."""
        while not self._exhausted and len(self._running) < self._window:
            maker = next(self._makers, None)
            if maker is None:
                self._exhausted = True
            else:
                self._running.append(maker())
        left, happened = [], False
        for fibre in self._running:
            try:
                happened |= next(fibre)
                left.append(fibre)
            except StopIteration:
                happened = True
        self._running = left
        return happened

    @property
    def over(self) -> bool:
        """Whether all have come to their ends."""
        return self._exhausted and not self._running

    def run(self, pauses: Pauses, check: Callable[[], None] = lambda: None) -> None:
        """Wait for all of them; `check` is called at every look, and raises where there is no more point in it."""
        while True:
            happened = self.advance()
            if self.over:
                return
            check()
            if happened:
                pauses.happened()
            else:
                pauses.wait()
