"""Servers and schedulers notice when the others are gone: nobody tells them, but the connections end.

Only connections that lead to processes of the cluster count. Strangers can connect as often as they like.

ps-lite's own way out is a barrier over all processes, which never opens once one of them has died.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable

from .watchdog import Wait, Watchdog

log = logging.getLogger(__name__)

TICK = 0.25
#: Shorter than any process takes from its first connection to its end.
ARRIVAL_TICK = 0.03


class Company(threading.Thread):
    """Watches how many other processes this one is connected to.

    Args:
        here: the other processes of the cluster that are connected now, each under a name of its own, the same at
            every call.
        everyone: number of processes that belong to the cluster, this one left out.
        least: with so many or fewer left, this process is alone.
        patience: seconds of being alone before `alone` is called.
        alone: ends the process; called in this thread.
        watchdog: speaks up while the processes are not complete yet.
        wait: what it says.
    """

    def __init__(
        self,
        here: Callable[[], Collection[Hashable]],
        everyone: int,
        least: int,
        patience: float,
        alone: Callable[[], None],
        watchdog: Watchdog,
        wait: Wait,
    ) -> None:
        super().__init__(name="company", daemon=True)
        self._here = here
        self._everyone, self._least, self._patience, self._alone = everyone, least, patience, alone
        self._watchdog, self._wait = watchdog, watchdog.begin(wait)

    def run(self) -> None:
        """Wait until everyone has been here (not all at one time, if the run fails at once), then for being alone."""
        what = self._wait.what
        seen: set[Hashable] = set()
        while True:
            seen.update(self._here())
            if len(seen) >= self._everyone:
                break
            self._wait.what = f"{what} ({len(seen)} of {self._everyone} have connected)"
            time.sleep(ARRIVAL_TICK)
        self._watchdog.over(self._wait)
        log.info("everyone is here")
        since = time.monotonic()
        while time.monotonic() - since < self._patience:
            if len(self._here()) > self._least:
                since = time.monotonic()
            time.sleep(TICK)
        self._alone()
