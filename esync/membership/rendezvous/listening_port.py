"""The port on which a worker listens: one to which nobody tries to connect.

A parameter server never gives up its connection to a worker that has died: ps-lite has ZeroMQ connect again and
again, under the server's identity. A new worker, of this or another job, that got the same port would be found by
that server first, and ZeroMQ would then ignore the worker's own server, which has the same identity.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds for which a port has to be quiet. ZeroMQ tries to connect every 0.1 to 0.2 s.
QUIET = 0.3


@contextmanager
def reserved_port() -> Iterator[None]:
    """Reserve a quiet port, and name it in the variable PORT, which ps-lite reads; a PORT that is set is kept."""
    if os.environ.get("PORT"):
        yield
        return
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lets ps-lite bind it, too
        reservation.bind(("", quiet_port()))
        os.environ["PORT"] = str(reservation.getsockname()[1])
        try:
            yield
        finally:
            del os.environ["PORT"]


def quiet_port() -> int:
    """Return a free port to which nobody tries to connect."""
    while True:
        with socket.create_server(("", 0)) as listener:
            listener.settimeout(QUIET)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                return int(listener.getsockname()[1])
            connection.close()
