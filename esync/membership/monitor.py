"""The monitor thread, which watches the other processes of the cluster, and acts when they are gone.

While MXNet waits for the answer of a dead server, no Python code of the main thread runs, and ps-lite
itself ends with a barrier over all processes, which never opens once one of them has died.
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
#: Seconds between two checks.
TICK = 0.25
#: Seconds between two checks until all processes have arrived, shorter than the life of any process
#: after its first connection.
ARRIVAL_TICK = 0.03
#: Seconds between a worker's last message and its end, in which the logs of the last rounds are written.
FAREWELL = 1.0


@dataclass(frozen=True)
class Arrival:
    """The wait for all processes of a cluster.

    Attributes:
        complete: returns whether all processes have arrived, given the number that have been connected.
        watchdog: announces missing processes.
        wait: the wait that it watches.
    """

    complete: Callable[[int], bool]
    watchdog: Watchdog
    wait: WatchedWait


class Monitor(threading.Thread, Generic[P]):
    """Periodically checks which peers are connected.

    Args:
        present: returns the currently connected peers, each with a constant identifier.
        grace: seconds without a connection after which a peer counts as gone.
        lost: called in this thread with the peers that are gone and the number of the remaining ones.
            If it returns True, the thread ends; otherwise it is called again at the next check at
            which a peer is gone.
        arrival: no peer counts as gone until all have been connected (not necessarily at the same
            time), unless all that have arrived have left.
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
        self._checking = threading.Lock()
        if arrival is not None:
            arrival.watchdog.begin(arrival.wait)

    def close(self) -> None:
        """Stop watching, because peers may leave from now on."""
        self._closed.set()

    def run(self) -> None:
        """Watch until `lost` returns True, or until `close`."""
        if self._arrival is not None:
            self._await(self._arrival)
        while not self._closed.is_set():
            dead = self.check(time.monotonic())
            if dead and not self._closed.is_set() and self._lost(dead, len(self._detector) - len(dead)):
                return
            self._closed.wait(TICK)

    def check(self, now: float) -> list[P]:
        """Check once; return the peers that are gone."""
        with self._checking:
            return self._detector.observe(self._present(), now)

    def absent(self) -> list[P]:
        """Check again, in any thread; return the peers without a connection, gone or not yet."""
        with self._checking:
            self._detector.observe(self._present(), time.monotonic())
            return self._detector.absent

    def missing(self, peer: P) -> float:
        """Return the seconds for which a peer has been missing."""
        return self._detector.missing(peer, time.monotonic())

    def _await(self, arrival: Arrival) -> None:
        while not self._closed.is_set():
            dead = self.check(time.monotonic())
            if arrival.complete(len(self._detector)):
                log.info("everyone is here")
                break
            if dead and len(dead) == len(self._detector):
                break
            time.sleep(ARRIVAL_TICK)
        arrival.watchdog.over(arrival.wait)


def give_up(reason: str) -> None:
    """End this worker, which cannot continue, for a reason."""
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
    """Return a monitor of the processes on which a worker depends; the caller starts it.

    Args:
        scheduler: address at which the scheduler listens.
        servers: address at which each parameter server listens.
        lost: called in the monitor's thread, once for each process that is gone, with its name.
        grace: seconds without a connection before it counts as gone; None: config.PEER_TIMEOUT.
    """
    servers = list(servers)
    name = "the parameter server" if len(servers) == 1 else "a parameter server"
    peers: Peers[str] = Peers()
    for address, role in {scheduler: SCHEDULER, **dict.fromkeys(servers, name)}.items():
        peers.add(f"{role} at {address[0]}:{address[1]}", *address)

    reported: set[str] = set()

    def report(dead: list[str], remaining: int) -> bool:
        for name in dead:
            if name not in reported:
                reported.add(name)
                lost(name)
        return False  # a worker that does not need this process may depend on another one

    return Monitor(peers.connected, config.PEER_TIMEOUT if grace is None else grace, report)


def monitor_cluster(
    present: Callable[[], Collection[P]],
    minimum: int,
    grace: float,
    alone: Callable[[], None],
    arrival: Arrival,
    patience: Callable[[], float] = lambda: 0.0,
) -> Monitor[P]:
    """Return a monitor of a whole cluster, for its servers and its scheduler.

    The caller starts it.

    Args:
        present: returns the currently connected peers, each with a constant identifier.
        minimum: number of remaining peers at which this process counts as alone.
        grace: seconds without a connection after which a peer counts as gone.
        alone: ends the process; called in the monitor's thread.
        arrival: the wait for all peers.
        patience: returns the seconds for which a process that is alone waits for replacements.
    """

    def report(dead: list[P], remaining: int) -> bool:
        over = remaining <= minimum and monitor.missing(dead[-1]) >= patience()
        if over:
            alone()
        return over

    monitor = Monitor(present, grace, report, arrival)
    return monitor
