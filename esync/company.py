"""Servers and schedulers notice when the others are gone: nobody tells them, but the connections end.

ps-lite's own way out is a barrier over all processes, which never opens once one of them has died.
"""

import logging
import threading
import time
from collections.abc import Callable

from .sockets import connections
from .watchdog import Wait, Watchdog

log = logging.getLogger(__name__)

#: Connections between two processes: ps-lite opens one for each direction.
PER_PROCESS = 2
TICK = 0.25
#: Shorter than any process takes from its first connection to its end.
ARRIVAL_TICK = 0.03


def established() -> int:
    """Connections of this process whose other side is there."""
    return sum(connection.established for connection in connections())


class Company(threading.Thread):
    """Watches how many other processes this one is connected to.

    Args:
        everyone: number of processes that belong to the cluster, this one left out.
        least: with so many or fewer left, this process is alone.
        patience: seconds of being alone before `alone` is called.
        alone: ends the process; called in this thread.
        watchdog: speaks up while the processes are not complete yet.
        wait: what it says.
    """

    def __init__(
        self,
        everyone: int,
        least: int,
        patience: float,
        alone: Callable[[], None],
        watchdog: Watchdog,
        wait: Wait,
    ) -> None:
        super().__init__(name="company", daemon=True)
        self._everyone, self._least, self._patience, self._alone = everyone, least, patience, alone
        self._watchdog, self._wait = watchdog, watchdog.begin(wait)

    def run(self) -> None:
        """Wait until everyone has been here (not all at one time, if the run fails at once), then for being alone."""
        what = self._wait.what
        seen: set[int] = set()
        while True:
            seen.update(connection.inode for connection in connections() if connection.established)
            here = len(seen) // PER_PROCESS
            if here >= self._everyone:
                break
            self._wait.what = f"{what} ({here} of {self._everyone} have connected)"
            time.sleep(ARRIVAL_TICK)
        self._watchdog.over(self._wait)
        log.info("everyone is here")
        since = time.monotonic()
        while time.monotonic() - since < self._patience:
            if established() // PER_PROCESS > self._least:
                since = time.monotonic()
            time.sleep(TICK)
        self._alone()
