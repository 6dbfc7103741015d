"""Look up the addresses of host names in the background.

Lookups are repeated until they succeed, so that an outage of the name server delays a job, but does not
end it.
"""

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

#: Number of threads for lookups, and seconds between two attempts.
RESOLVERS, RESOLVE_EVERY = 4, 1.0


def is_address(host: str) -> bool:
    """Return whether a host is an IPv4 address in the kernel's notation."""
    try:
        return socket.inet_ntoa(socket.inet_pton(socket.AF_INET, host)) == host
    except (OSError, ValueError):  # ValueError: there is a NUL in it
        return False


def resolve(host: str) -> list[str]:
    """Return the IPv4 addresses of a host, the preferred one first.

    The list is empty if the name cannot be resolved. This may take long; see `Lookup`.
    """
    try:
        results = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: it cannot be a host name, for instance because of a NUL
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


@cache
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")


class Lookup:
    """The addresses of one host, looked up repeatedly in another thread. For use by one thread.

    Args:
        host: name or address.

    Attributes:
        failures: number of failed attempts.
    """

    def __init__(self, host: str) -> None:
        self.failures = 0
        self._host = host
        self._found = [host] if is_address(host) else []
        self._running: Future[list[str]] | None = None
        self._again_at = 0.0

    def addresses(self) -> list[str]:
        """Return the addresses, the preferred one first; empty while they are unknown."""
        if not self._found:
            self._advance()
        return self._found

    def cancel(self) -> None:
        """Cancel a lookup that has not begun yet."""
        if self._running is not None:
            self._running.cancel()

    def _advance(self) -> None:
        if self._running is None and time.monotonic() >= self._again_at:
            self._running = _resolvers().submit(resolve, self._host)
        if self._running is not None and self._running.done():
            self._found, self._running = self._running.result(), None
            if not self._found:
                self.failures += 1
                self._again_at = time.monotonic() + RESOLVE_EVERY
