"""A worker notices when the scheduler or a parameter server is gone: nobody tells it, but their connections end.

While MXNet waits for the answer of a dead server, no Python code of the main thread runs; so a thread watches, and ends
the process. Only connections to those addresses count that the scheduler has named: what else the user's program is
connected to is its own business.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection

from ... import config, progress
from ...sockets import connections, keep_alive, numbers
from ...watchdog import leave

log = logging.getLogger(__name__)

#: Seconds between two looks.
TICK = 0.5
#: Seconds between the message and the end of the process: the logs of the last rounds are still being written.
GRACE = 1.0

Address = tuple[str, int]


def lost(who: str) -> None:
    """End this process with a message."""
    reason = f"{who} is gone: its connection has ended; without it this worker cannot go on"
    log.error("error: %s", reason)
    progress.tell(progress.OVER, reason=reason)
    time.sleep(GRACE)
    leave(1)


class Peers(threading.Thread):
    """Watches the processes that a worker cannot do without.

    Args:
        scheduler: where it listens.
        servers: where each parameter server listens.
        lost: called in this thread with the one that is gone.
        patience: seconds without a connection before somebody counts as gone.
    """

    def __init__(
        self,
        scheduler: Address,
        servers: Collection[Address],
        lost: Callable[[str], None] = lost,
        patience: float = config.PEER_GONE,
    ) -> None:
        super().__init__(name="peers", daemon=True)
        name = "the parameter server" if len(servers) == 1 else "a parameter server"
        self._names = {scheduler: "the scheduler", **dict.fromkeys(servers, name)}
        self._lost, self._patience = lost, patience
        self._numbers: dict[Address, set[Address]] = {}  # each one's addresses as the kernel writes them
        self._seen: dict[Address, float] = {}
        self._over = threading.Event()

    def over(self) -> None:
        """From now on everybody may go."""
        self._over.set()

    def run(self) -> None:
        """Look again and again."""
        while not self._over.is_set():
            gone = self.look(time.monotonic())
            if gone and not self._over.is_set():
                self._lost(gone)
                return
            self._over.wait(TICK)

    def look(self, now: float) -> str:
        """Who is gone, in words; "" where nobody is."""
        for host, port in self._names.keys() - self._numbers.keys():
            if found := numbers(host):
                self._numbers[host, port] = {(number, port) for number in found}
        keep_alive(*config.KEEP_ALIVE, among=set().union(*self._numbers.values()))
        established = {connection.there for connection in connections() if connection.established}
        for address, name in self._names.items():
            # A connection has to be seen before it can be missed.
            if established & self._numbers.get(address, set()):
                self._seen[address] = now
            elif now - self._seen.get(address, now) > self._patience:
                host, port = address
                return f"{name} at {host}:{port}"
        return ""
