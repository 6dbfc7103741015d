"""Transport between ranks: transfers of contiguous arrays, and the coroutines that wait for them.

Transfers are started now and asked about later. A *coroutine* is a generator that yields whenever
it has to wait, and says with it whether it has progressed since it last did. `CoroutinePool` runs
several of them at a time, in order, and waits without taking a core: it polls, with pauses that
grow.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

import numpy as np

from ... import config


class Request(Protocol):
    """A transfer under way."""

    def done(self) -> bool:
        """Return whether the transfer is over, without waiting.

        Sent values may be changed then, and received ones are there.
        """
        ...


class Transport(Protocol):
    """One rank's connection to the others.

    Messages between two ranks with the same tag arrive in the order in which they were sent.

    Attributes:
        rank: of this process.
        size: number of ranks.
    """

    rank: int
    size: int

    def isend(self, values: np.ndarray, to: int, tag: int) -> Request:
        """Begin to send; the values must stay as they are until it is done."""
        ...

    def irecv(self, values: np.ndarray, source: int, tag: int) -> Request:
        """Begin to receive; exactly as many values must be sent."""
        ...


Coroutine = Iterator[bool]


def until_done(request: Request) -> Coroutine:
    """Return a coroutine that waits for a transfer.

    To have come to it counts as progress.
    """
    got_on = True
    while not request.done():
        yield got_on
        got_on = False


class Backoff:
    """Decides how long to wait before the next look, while nothing happens.

    MPI moves bytes only while it is asked, so right after something has happened the next look
    comes at once; where nothing has happened for longer, pauses leave the core to processes that
    compute.

    Args:
        longest: seconds of the longest pause.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        """Begin with short pauses again, because something has happened."""
        self._since = time.perf_counter()
        self._pause = config.COLLECTIVE_FIRST_PAUSE

    def wait(self) -> None:
        """Wait until it is time for the next look."""
        if time.perf_counter() - self._since < config.COLLECTIVE_SPIN:
            os.sched_yield()
            return
        time.sleep(self._pause)
        self._pause = min(self._pause * 1.5, self._longest)


class CoroutinePool:
    """Coroutines that are begun in order, a window of them at the same time.

    Args:
        coroutines: taken one by one, when it is their turn.
    """

    def __init__(self, coroutines: Iterable[Coroutine]) -> None:
        self._waiting = iter(coroutines)
        self._running: list[Coroutine] = []
        self._exhausted = False

    def advance(self) -> bool:
        """Let each coroutine go on until it has to wait; return whether any has progressed."""
        free = config.COLLECTIVE_WINDOW - len(self._running)
        begun = list(islice(self._waiting, free))
        self._exhausted = len(begun) < free
        self._running += begun
        left, happened = [], False
        for coroutine in self._running:
            try:
                happened |= next(coroutine)
                left.append(coroutine)
            except StopIteration:
                happened = True
        self._running = left
        return happened

    @property
    def over(self) -> bool:
        """Whether all coroutines have ended."""
        return self._exhausted and not self._running

    def run(self, backoff: Backoff, check: Callable[[], None] = lambda: None) -> None:
        """Run all coroutines to their ends.

        Args:
            backoff: pauses while nothing happens.
            check: called at every look; raises to give up.
        """
        while True:
            happened = self.advance()
            if self.over:
                return
            check()
            if happened:
                backoff.reset()
            else:
                backoff.wait()


#: Tags of messages other than buckets. Those of buckets begin at FIRST_BUCKET and are used again
#: after BUCKETS of them.
CONTROL, LENGTH, TEXT, PROBE = range(4)
FIRST_BUCKET, BUCKETS = 16, 4096


def bucket_tag(index: int) -> int:
    """Return the tag of a bucket's messages; buckets on their way at the same time differ in it."""
    return FIRST_BUCKET + index % BUCKETS


def allgather_texts(transport: Transport, text: str, texts: dict[int, str]) -> Coroutine:
    """Return a coroutine that fills `texts`, rank → the text of that rank.

    `texts` may be read meanwhile.
    """
    own = np.frombuffer(text.encode(), np.uint8)
    peers = [rank for rank in range(transport.size) if rank != transport.rank]
    length = np.array([own.size], np.int64)
    sent: list[Request] = [transport.isend(length, peer, LENGTH) for peer in peers]
    sent += [transport.isend(own, peer, TEXT) for peer in peers]
    lengths = {peer: np.zeros(1, np.int64) for peer in peers}
    arriving = {peer: transport.irecv(lengths[peer], peer, LENGTH) for peer in peers}
    coming: dict[int, np.ndarray] = {}
    texts[transport.rank] = text
    while arriving:
        got_on = False
        for peer, request in list(arriving.items()):
            if not request.done():
                continue
            got_on = True
            if peer in coming:
                texts[peer] = coming[peer].tobytes().decode()
                del arriving[peer]
            else:
                coming[peer] = np.empty(int(lengths[peer][0]), np.uint8)
                arriving[peer] = transport.irecv(coming[peer], peer, TEXT)
        if arriving:
            yield got_on
    for request in sent:
        yield from until_done(request)
