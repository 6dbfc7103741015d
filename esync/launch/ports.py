"""Free ports, held for a job: two jobs that start at the same time on one machine never choose the same one.

A socket that is bound but does not listen keeps the kernel from giving the port away, while a server that sets
SO_REUSEADDR, as ZeroMQ and waitress do, can still bind it and listen (Linux).
"""

import errno
import socket
from types import TracebackType

from ..runtime.errors import ExpectedError
from .hosts import LOOPBACK


class PortInUseError(ExpectedError):
    """Somebody listens on a port that the description names."""


class Ports:
    """Ports of this machine that are held until this is closed."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def free(self, number: int) -> list[int]:
        """That many free ports, ascending."""
        return sorted(self._hold(0) for _ in range(number))

    def claim(self, port: int, owner: str) -> None:
        """Hold a certain port.

        Raises:
            PortInUseError: somebody else has it, or this user may not use it.
        """
        try:
            self._hold(port)
        except OSError as error:
            reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise PortInUseError(
                f"{owner} {port}: {reason}; choose another one, or leave the port out and launch chooses it"
            ) from None

    def _hold(self, port: int) -> int:
        holder = socket.socket()
        self._sockets.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, port))
        return int(holder.getsockname()[1])

    def __enter__(self) -> "Ports":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for holder in self._sockets:
            holder.close()
