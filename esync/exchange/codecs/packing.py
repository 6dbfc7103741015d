"""Compressed synchronous exchanges, the part that is the same over any network: what goes into which key.

All workers hold the same weights, bit for bit: the *common* ones, which the server knows. It keeps beside them the
weights that the rule works on, in float32 and exact; after every round it sends what leads the common weights nearer to
them, the same message for all, and takes the step itself. What that message could not say is still in the difference of
the two (error feedback on the way back). On the way up every worker adds what it could not say to its next payload.

Each way of packing has a worker's half (`Packer`) and a server's half (`Unpacker`): `packed_buckets` for codecs of a
fixed size, `packed_sparse` for top-k.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

#: Gives the memory of a packed array that is to be sent, given its key and its size in float32 values.
Room = Callable[[int, int], np.ndarray]
#: Gives the sum of a bucket (its index, its size), and whether it is fresh: to be overwritten, as if it were zeros.
Total = Callable[[int, int], tuple[np.ndarray, bool]]


class Copies(NamedTuple):
    """One bucket of weights on a server.

    Attributes:
        exact: what the rule works on.
        common: what all workers hold.
    """

    exact: np.ndarray
    common: np.ndarray


class Unpacker(Protocol):
    """The half of one server."""

    def holds(self, key: int) -> bool:
        """Whether this key is for packed arrays."""
        ...

    def add(self, payload: Mapping[int, np.ndarray], total: Total, factor: float) -> None:
        """Add what a worker's arrays (place → values) say, times a factor, to a sum.

        Raises:
            CompressionError, SparseError: they are malformed.
        """
        ...

    def answer(
        self, copies: Iterable[tuple[int, Copies]], payloads: int, room: Room
    ) -> tuple[list[tuple[int, int]], int]:
        """Bring the common weights nearer to the exact ones.

        Args:
            copies: of all buckets of weights, with their indices, one by one as they are ready.
            payloads: how many have gone into the round.
            room: where the answer is put.

        Returns:
            Key and place of each array of the answer, and its length, where its arrays depend on that.
        """
        ...
