"""Host names and their addresses, looked up without keeping anybody waiting.

A name server that is away for a while delays a job and does not end it: a name that cannot be
resolved is looked up again and again.
"""

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

#: Threads that look names up, and seconds between two attempts.
RESOLVERS, RESOLVE_EVERY = 4, 1.0


def is_address(host: str) -> bool:
    """Return whether a host is given by its IPv4 address, as the kernel writes it."""
    try:
        return socket.inet_ntoa(socket.inet_pton(socket.AF_INET, host)) == host
    except (OSError, ValueError):  # ValueError: there is a NUL in it
        return False


def resolve(host: str) -> list[str]:
    """Return the IPv4 addresses of a host, the preferred one first.

    There are none where its name cannot be resolved. This may take long: see `Lookup`.
    """
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: it cannot be a host name, for instance because of a NUL
        return []
    return list(dict.fromkeys(str(where[0]) for *_, where in found))


@cache
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")


class Lookup:
    """The addresses of one host, looked up in another thread until they are found. For one thread.

    Args:
        host: name or address.

    Attributes:
        failures: attempts that have found nothing.
    """

    def __init__(self, host: str) -> None:
        self.failures = 0
        self._host = host
        self._found = [host] if is_address(host) else []
        self._running: Future[list[str]] | None = None
        self._again_at = 0.0

    def addresses(self) -> list[str]:
        """Return the addresses, the preferred one first, or none while they are unknown."""
        if not self._found:
            self._go_on()
        return self._found

    def cancel(self) -> None:
        """Cancel a lookup that has not begun yet."""
        if self._running is not None:
            self._running.cancel()

    def _go_on(self) -> None:
        if self._running is None and time.monotonic() >= self._again_at:
            self._running = _resolvers().submit(resolve, self._host)
        if self._running is not None and self._running.done():
            self._found, self._running = self._running.result(), None
            if not self._found:
                self.failures += 1
                self._again_at = time.monotonic() + RESOLVE_EVERY
