"""Ports for processes that a test starts."""

import itertools
import os
import random
import socket
from collections.abc import Iterator

#: Outside of the range that Linux chooses from by itself (32768 to 60999), so that no other process
#: gets the port between the choice and its use; a fifth of it for each process of pytest-xdist.
FIRST, BLOCK, BLOCKS = 10000, 2000, 5
BLOCK_NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % BLOCKS


def _ports() -> Iterator[int]:
    start = random.SystemRandom().randrange(BLOCK)  # another test run on this machine starts elsewhere
    for number in itertools.count(start):
        yield FIRST + BLOCK * BLOCK_NUMBER + number % BLOCK


_CANDIDATES = _ports()


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of this machine that nobody listens on, and that was not returned shortly before."""
    for port in itertools.islice(_CANDIDATES, BLOCK):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port of {BLOCK} is free")
