"""A worker notices when the scheduler or a parameter server is gone: nobody tells it, but their connections end.

While MXNet waits for the answer of a dead server, no Python code of the main thread runs; so a thread watches, and ends
the process.
"""

import logging
import threading
import time
from collections.abc import Callable

from .. import config, progress
from ..sockets import connections, keep_alive, listening
from ..watchdog import leave

log = logging.getLogger(__name__)

#: Seconds between two looks.
TICK = 0.5
#: Seconds between the message and the end of the process: the logs of the last rounds are still being written.
GRACE = 1.0

Address = tuple[str, int]


def own_address() -> str:
    """Where this process listens to the others, host:port, as they know it; "" before anybody has connected."""
    ports = listening()
    ends = (connection.here for connection in connections() if connection.here[1] in ports)
    return next((f"{host}:{port}" for host, port in ends), "")


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
        scheduler: its address.
        servers: number of parameter servers.
        lost: called in this thread with the one that is gone.
        patience: seconds without a connection before somebody counts as gone.
    """

    def __init__(
        self,
        scheduler: Address,
        servers: int,
        lost: Callable[[str], None] = lost,
        patience: float = config.PEER_GONE,
    ) -> None:
        super().__init__(name="peers", daemon=True)
        self._scheduler, self._servers, self._lost, self._patience = scheduler, servers, lost, patience
        self._seen: dict[Address, float] = {}
        self._over = threading.Event()

    def over(self) -> None:
        """From now on everybody may go."""
        self._over.set()

    def run(self) -> None:
        """Look again and again."""
        while not self._over.is_set():
            keep_alive(*config.KEEP_ALIVE)
            gone = self.look(time.monotonic())
            if gone and not self._over.is_set():
                self._lost(gone)
                return
            self._over.wait(TICK)

    def look(self, now: float) -> str:
        """Who is gone, in words; "" where nobody is."""
        ports = listening()
        outgoing = {each.there for each in connections() if each.established and each.here[1] not in ports}
        for address in outgoing:
            # ps-lite connects to the scheduler and the servers before anything else of this process connects anywhere.
            if address in self._seen or len(self._seen) < 1 + self._servers:
                self._seen[address] = now
        for address, seen in list(self._seen.items()):
            if now - seen > self._patience:
                host, port = address
                if address == self._scheduler:
                    return f"the scheduler at {host}:{port}"
                return f"{'the' if self._servers == 1 else 'a'} parameter server at {host}:{port}"
        return ""
