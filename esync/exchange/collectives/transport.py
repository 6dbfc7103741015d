"""What a collective needs of the network: contiguous arrays from rank to rank, started now and asked about later."""

from typing import Protocol

import numpy as np


class Request(Protocol):
    """A transfer under way."""

    def done(self) -> bool:
        """Whether it is over, without waiting; what it sends may be changed then, what it receives is there."""
        ...


class Transport(Protocol):
    """One rank's way to the others.

    Messages between two ranks with the same tag arrive in the order in which they were sent.

    Attributes:
        rank: of this process.
        size: number of ranks.
    """

    rank: int
    size: int

    def isend(self, values: np.ndarray, to: int, tag: int) -> Request:
        """Begin to send; the values must stay as they are until it is done."""
        ...

    def irecv(self, values: np.ndarray, source: int, tag: int) -> Request:
        """Begin to receive exactly as many values."""
        ...
