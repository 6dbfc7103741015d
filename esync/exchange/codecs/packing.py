"""Compressed synchronous exchanges, the part that is the same over any network: what goes into which key.

All workers hold the same weights, bit for bit: the *common* ones, which the server knows. It keeps beside them the
weights that the rule works on, in float32 and exact; after every round it sends what leads the common weights nearer to
them, the same message for all, and takes the step itself. What that message could not say is still in the difference of
the two (error feedback on the way back). On the way up every worker adds what it could not say to its next payload.

Each way of packing has a worker's half (`Packer`) and a server's half (`Unpacker`): `packed_buckets` for codecs of a
fixed size, `packed_sparse` for top-k.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..base import Model, Source

#: Gives the memory of a packed array that is to be sent, given its key and its size in float32 values.
Room = Callable[[int, int], np.ndarray]
#: Gives the sum of a bucket (its index, its size), and whether it is fresh: to be overwritten, as if it were zeros.
Total = Callable[[int, int], tuple[np.ndarray, bool]]


class Packed(NamedTuple):
    """One array that has been filled and is to be pushed.

    Attributes:
        shard: the server that it is for.
        key: of the key store.
        place: names it among those of a payload; goes into its header.
    """

    shard: int
    key: int
    place: int


class Copies(NamedTuple):
    """One bucket of weights on a server.

    Attributes:
        exact: what the rule works on.
        common: what all workers hold.
    """

    exact: np.ndarray
    common: np.ndarray


@runtime_checkable
class KeepsCommon(Protocol):
    """A model that has the common weights beside its own."""

    def common_weights(self) -> np.ndarray | None:
        """Where they are; who changes them then writes them to the model. None: there are none, or rounded ones."""


class Packer(Protocol):
    """A worker's half."""

    def write(self, values: Source, room: Room) -> Iterator[Packed]:
        """Pack a payload, array by array; what cannot be said is kept for the next one."""
        ...

    def wanted(self, shard: int, length: int) -> list[tuple[int, int]]:
        """The answer's arrays from a server: keys, and sizes in float32 values; `length` as its status says."""
        ...

    def read(self, shard: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
        """Take an answer's arrays, headers included, in the order of `wanted`: change the common weights, write them.

        Raises:
            CompressionError, SparseError: they are malformed.
        """
        ...


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
