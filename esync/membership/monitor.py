"""The monitor thread: watches the other processes of the cluster, and acts when they are gone.

While MXNet waits for the answer of a dead server, no Python code of the main thread runs, and
ps-lite's own way out is a barrier over all processes, which never opens once one of them has died.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .. import config
from ..runtime import progress
from ..runtime.watchdog import Watchdog, WatchedWait, exit_now
from .connections import Address
from .failure_detector import FailureDetector
from .peers import Peers

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Hashable)

#: The scheduler's name in messages, in front of its address.
SCHEDULER = "the scheduler"
#: Seconds between two looks.
TICK = 0.25
#: Seconds between two looks before everyone has come: shorter than any process takes from its
#: first connection to its end.
ARRIVAL_TICK = 0.03
#: Seconds between a worker's last message and its end: the logs of the last rounds are still being
#: written.
FAREWELL = 1.0


@dataclass(frozen=True)
class Arrival:
    """The wait for all processes of a cluster.

    Attributes:
        complete: returns whether all have come, given the number of those that have been connected.
        watchdog: warns about who is missing.
        wait: the wait that it watches.
    """

    complete: Callable[[int], bool]
    watchdog: Watchdog
    wait: WatchedWait


class Monitor(threading.Thread, Generic[P]):
    """Looks again and again at which peers are connected.

    Args:
        present: returns the peers that are connected now, each under the same name at every call.
        grace: seconds without a connection before a peer counts as gone.
        lost: called in this thread with the peers that are gone and the number of those that are
            left. Where it returns True, the thread ends; where it returns False, it is called again
            at the next look at which somebody is gone.
        arrival: nobody counts as gone before all have been there (not all at one time, if the run
            fails at once), unless all that have come have left.
    """

    def __init__(
        self,
        present: Callable[[], Collection[P]],
        grace: float,
        lost: Callable[[list[P], int], bool],
        arrival: Arrival | None = None,
    ) -> None:
        super().__init__(name="monitor", daemon=True)
        self._present, self._lost = present, lost
        self._detector: FailureDetector[P] = FailureDetector(grace)
        self._arrival = arrival
        self._closed = threading.Event()
        self._looking = threading.Lock()
        if arrival is not None:
            arrival.watchdog.begin(arrival.wait)

    def close(self) -> None:
        """Stop watching: from now on any peer may leave."""
        self._closed.set()

    def run(self) -> None:
        """Watch until `lost` returns True, or until `close`."""
        if self._arrival is not None:
            self._await(self._arrival)
        while not self._closed.is_set():
            gone = self.look(time.monotonic())
            if gone and not self._closed.is_set() and self._lost(gone, len(self._detector) - len(gone)):
                return
            self._closed.wait(TICK)

    def look(self, now: float) -> list[P]:
        """Take one look; return the peers that are gone."""
        with self._looking:
            return self._detector.look(self._present(), now)

    def absent(self) -> list[P]:
        """Take one more look; return the peers without a connection now, gone or not yet.

        It may be called in any thread.
        """
        with self._looking:
            self._detector.look(self._present(), time.monotonic())
            return self._detector.absent

    def missing(self, peer: P) -> float:
        """Return the seconds that a peer has been missing."""
        return self._detector.missing(peer, time.monotonic())

    def _await(self, arrival: Arrival) -> None:
        while not self._closed.is_set():
            gone = self.look(time.monotonic())
            if arrival.complete(len(self._detector)):
                log.info("everyone is here")
                break
            if gone and len(gone) == len(self._detector):
                break
            time.sleep(ARRIVAL_TICK)
        arrival.watchdog.over(arrival.wait)


def give_up(reason: str) -> None:
    """End this worker, which cannot go on for this reason."""
    log.error("error: %s", reason)
    progress.report_event(progress.CUT_OFF, reason=reason)
    time.sleep(FAREWELL)
    exit_now(1)


def monitor_servers(
    scheduler: Address,
    servers: Iterable[Address],
    lost: Callable[[str], None],
    grace: float | None = None,
) -> Monitor[str]:
    """Return a monitor of the processes that a worker depends on; the caller starts it.

    Args:
        scheduler: address at which the scheduler listens.
        servers: address at which each parameter server listens.
        lost: called in the monitor's thread, once for each process that is gone, with its name.
        grace: seconds without a connection before it counts as gone; None: config.PEER_GONE.
    """
    servers = list(servers)
    name = "the parameter server" if len(servers) == 1 else "a parameter server"
    peers: Peers[str] = Peers()
    for address, role in {scheduler: SCHEDULER, **dict.fromkeys(servers, name)}.items():
        peers.add(f"{role} at {address[0]}:{address[1]}", *address)

    told: set[str] = set()

    def report(gone: list[str], left: int) -> bool:
        for who in gone:
            if who not in told:
                told.add(who)
                lost(who)
        return False  # a worker that does without one may still wait for another

    return Monitor(peers.connected, config.PEER_GONE if grace is None else grace, report)


def monitor_cluster(
    present: Callable[[], Collection[P]],
    least: int,
    grace: float,
    alone: Callable[[], None],
    arrival: Arrival,
    patience: Callable[[], float] = lambda: 0.0,
) -> Monitor[P]:
    """Return a monitor of a whole cluster, for its servers and its scheduler.

    The caller starts it.

    Args:
        present: returns the peers that are connected now, each under the same name at every call.
        least: this process is alone when that many peers or fewer are left.
        grace: seconds without a connection before a peer counts as gone.
        alone: ends the process; called in the monitor's thread.
        arrival: the wait for all of them.
        patience: returns the seconds that this process waits, alone, for replacements.
    """

    def report(gone: list[P], left: int) -> bool:
        over = left <= least and monitor.missing(gone[-1]) >= patience()
        if over:
            alone()
        return over

    monitor = Monitor(present, grace, report, arrival)
    return monitor
