"""When a polling worker learns that the servers have used its payload, computed without its polls."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from ..exchange.protocol.store import FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH
from .cluster_state import ClusterState
from .servers import ServerNode


class PollingWorker(Protocol):
    """What an exchange needs of the worker's store; see `store.VirtualStore`."""

    state: ClusterState
    rank: int

    def round_trip(self, node: ServerNode) -> float:
        """Return the seconds of a poll of a server's status."""

    def held(self, at: float) -> float:
        """Return the seconds by which a message sent at that time is delayed."""

    def poll(self, node: ServerNode, times: int) -> None:
        """Count a number of polls of a server's status."""


class Awaited:
    """An exchange whose acknowledgement a worker waits for.

    Args:
        worker: the store of the worker that polls.
        sequence: number of the exchange.
        sent: when the payload left, and polling began.

    Attributes:
        polled: when the last poll reaches the servers.
        noticed: when the worker learns that all servers have handled its payload; infinite as long
            as they have not.
        wake: ends the worker's wait.
    """

    def __init__(self, worker: PollingWorker, sequence: int, sent: float) -> None:
        self.sequence = sequence
        self.polled = self.noticed = math.inf
        self.wake: Callable[[Any], None] | None = None
        self._worker, self._sent = worker, sent

    def poke(self) -> None:
        """See `cluster_state.Waiting.poke`."""
        if self.wake is not None and self.noticed == math.inf:
            wake, self.wake = self.wake, None
            engine = self._worker.state.engine
            engine.call_at(engine.now, wake, None)

    def check(self, time: float) -> bool:
        """Return whether all servers have handled the payload by `time`, or the run has failed.

        Called when a server has handled a message.
        """
        worker = self._worker
        for node in worker.state.nodes:
            if not node.round_state.failure and node.round_state.acknowledged[worker.rank] < self.sequence:
                return False
        self.polled = self.noticed = 0.0
        for node in worker.state.nodes:
            round_trip = worker.round_trip(node)
            noticed, polls = noticed_at(self._sent, time, round_trip, worker.held(time))
            if noticed > self.noticed:
                self.noticed, self.polled = noticed, noticed - round_trip / 2
            worker.poll(node, polls)
        if self.wake is not None:
            engine = worker.state.engine
            # In rounds, a worker's status does not change until it commits again, so that it need
            # not wait for the last poll.
            together = all(node.round_state.synchronous for node in worker.state.nodes)
            engine.call_at(engine.time if together else self.polled, self.wake, None)
        return True


def noticed_at(begun: float, used: float, round_trip: float, delay: float = 0.0) -> tuple[float, int]:
    """Return when a polling worker learns of an event, and the number of its polls until then.

    Args:
        begun: time at which the worker began to poll, in seconds.
        used: time of the event at the server.
        round_trip: seconds of a poll and its answer.
        delay: seconds by which each poll is delayed.
    """
    first, step = _polls(round_trip + delay)
    begun += delay / 2  # a poll takes delay + round_trip / 2 to the server; _polls assumes half of their sum
    passed = used - begun
    if passed <= first[-1]:
        index = bisect_left(first, passed)
        arrival, polls = first[index], index + 1
    else:
        more = math.ceil((passed - first[-1]) / step)
        arrival, polls = first[-1] + more * step, len(first) + more
    return max(begun + arrival, used) + round_trip / 2, polls


@lru_cache(maxsize=1024)
def _polls(round_trip: float) -> tuple[list[float], float]:
    """Return the times at which polls reach the server while their pauses grow, and the period afterwards."""
    arrivals, pause = [round_trip / 2], FIRST_PAUSE
    while pause < LONGEST_PAUSE:
        arrivals.append(arrivals[-1] + pause + round_trip)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
    return arrivals, LONGEST_PAUSE + round_trip
