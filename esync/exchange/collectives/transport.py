"""Transport between ranks: nonblocking transfers of contiguous arrays, and coroutines on them.

A *coroutine* is a generator that yields whenever it has to wait; the value is whether it has
progressed since the last yield. `CoroutinePool` runs several of them concurrently, and polls with
growing pauses, so that it does not occupy a core.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

import numpy as np

from ... import config


class Request(Protocol):
    """A transfer in progress."""

    def done(self) -> bool:
        """Return whether the transfer is complete, without waiting.

        Then sent values may be changed, and received values are valid.
        """
        ...


class Transport(Protocol):
    """One rank's connection to the others.

    Messages between two ranks with the same tag arrive in the order in which they were sent.

    Attributes:
        rank: of this process.
        size: number of ranks.
        crowded: whether any host has more ranks than cores; the same on all ranks.
    """

    rank: int
    size: int
    crowded: bool

    def isend(self, values: np.ndarray, to: int, tag: int) -> Request:
        """Start to send; the values must not change until the transfer is done."""
        ...

    def irecv(self, values: np.ndarray, source: int, tag: int) -> Request:
        """Start to receive as many values as the sender sends."""
        ...


Coroutine = Iterator[bool]


def until_done(request: Request) -> Coroutine:
    """Return a coroutine that waits for a transfer; reaching this point counts as progress."""
    progressed = True
    while not request.done():
        yield progressed
        progressed = False


class Backoff:
    """Pauses between polls.

    MPI makes progress only when it is polled, so there are no pauses right after progress. Later
    pauses grow, to leave the core to processes that compute.

    Args:
        longest: seconds of the longest pause.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        """Start again with short pauses, after progress."""
        self._since = time.perf_counter()
        self._pause = config.COLLECTIVE_FIRST_PAUSE

    def wait(self) -> None:
        """Wait until the next poll."""
        if time.perf_counter() - self._since < config.COLLECTIVE_SPIN:
            os.sched_yield()
            return
        time.sleep(self._pause)
        self._pause = min(self._pause * 1.5, self._longest)


class CoroutinePool:
    """Coroutines that are started in order, and of which a window runs concurrently.

    Args:
        coroutines: consumed one by one.
    """

    def __init__(self, coroutines: Iterable[Coroutine]) -> None:
        self._waiting = iter(coroutines)
        self._running: list[Coroutine] = []
        self._exhausted = False

    def advance(self) -> bool:
        """Run each coroutine until it has to wait; return whether any has progressed."""
        free = config.COLLECTIVE_WINDOW - len(self._running)
        begun = list(islice(self._waiting, free))
        self._exhausted = len(begun) < free
        self._running += begun
        unfinished, happened = [], False
        for coroutine in self._running:
            try:
                happened |= next(coroutine)
                unfinished.append(coroutine)
            except StopIteration:
                happened = True
        self._running = unfinished
        return happened

    @property
    def over(self) -> bool:
        """Whether all coroutines have ended."""
        return self._exhausted and not self._running

    def run(self, backoff: Backoff, check: Callable[[], None] = lambda: None) -> None:
        """Run all coroutines to their ends.

        Args:
            backoff: pauses between polls.
            check: called at every poll; may raise to give up.
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


#: Tags of messages other than buckets. Those of buckets start at FIRST_BUCKET and repeat after
#: BUCKETS of them.
CONTROL, LENGTH, TEXT = range(3)
FIRST_BUCKET, BUCKETS = 16, 4096


def bucket_bytes(ranks: int, crowded: bool) -> int:
    """Return the largest size of a bucket in bytes; see `Transport` for the arguments."""
    part = config.COLLECTIVE_CROWDED_BUCKET if crowded else config.COLLECTIVE_BUCKET
    return min(part * max(ranks, 1), config.COLLECTIVE_BUCKET_MAX)


def bucket_tag(index: int) -> int:
    """Return the tag of a bucket's messages, different for all buckets of a window."""
    return FIRST_BUCKET + index % BUCKETS


def allgather_texts(transport: Transport, text: str, texts: dict[int, str]) -> Coroutine:
    """Return a coroutine that fills `texts`, rank → text of that rank, as the texts arrive."""
    encoded = np.frombuffer(text.encode(), np.uint8)
    peers = [rank for rank in range(transport.size) if rank != transport.rank]
    length = np.array([encoded.size], np.int64)
    sent: list[Request] = [transport.isend(length, peer, LENGTH) for peer in peers]
    sent += [transport.isend(encoded, peer, TEXT) for peer in peers]
    lengths = {peer: np.zeros(1, np.int64) for peer in peers}
    arriving = {peer: transport.irecv(lengths[peer], peer, LENGTH) for peer in peers}
    incoming: dict[int, np.ndarray] = {}
    texts[transport.rank] = text
    while arriving:
        progressed = False
        for peer, request in list(arriving.items()):
            if not request.done():
                continue
            progressed = True
            if peer in incoming:
                texts[peer] = incoming[peer].tobytes().decode()
                del arriving[peer]
            else:
                incoming[peer] = np.empty(int(lengths[peer][0]), np.uint8)
                arriving[peer] = transport.irecv(incoming[peer], peer, TEXT)
        if arriving:
            yield progressed
    for request in sent:
        yield from until_done(request)
