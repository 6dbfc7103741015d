"""The parts that decide how the weights of a message are packed, on workers and on parameter servers.

A codec has a way up, from a worker to the servers, and a way down. Each way has two ends: an `Encoder` on the worker
and an `Uplink` on every server, a `Downlink` on every server and a `Decoder` on the worker. Other vectors of a message,
such as the statistics, always travel as they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...sparse import Sparse
from ..base import Model, Source

#: Gives the memory of an array that is to be sent, given its key and its size in float32 values.
Room = Callable[[int, int], np.ndarray]
#: Common weights that a worker keeps for its decoder: bucket index → values, changed in place.
Common = Mapping[int, np.ndarray]


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


@runtime_checkable
class KeepsCommon(Protocol):
    """A model that has the common weights beside its own."""

    def common_weights(self) -> np.ndarray | None:
        """Where they are; who changes them then writes them to the model. None: there are none, or rounded ones."""


# --- the worker's ends ----------------------------------------------------------------------------------------------


class Encoder(ABC):
    """Packs the weights' part of a worker's payloads."""

    @abstractmethod
    def write(self, values: Source | Sparse, room: Room) -> Iterator[Packed]:
        """Pack a payload, array by array; what cannot be said is kept for the next one.

        Args:
            values: a vector as long as the weights, or a sparse step where that is what is sent.
            room: where each array is to be put; asked for right before the array is written.

        Yields:
            Each array as soon as it is complete.
        """

    @abstractmethod
    def sizes(self, server: int) -> list[int]:
        """Sizes of a payload's arrays for a server in float32 values; an upper limit where they vary."""


class Decoder(ABC):
    """Takes the weights' part of the servers' answers.

    Attributes:
        keeps_common: whether answers lead from the common weights to the next ones, so that `begin` has to be called.
    """

    keeps_common = False

    def begin(self, common: Common, steps: Sequence[int]) -> None:  # noqa: B027 - most keep nothing
        """Start from these common weights.

        Args:
            common: changed in place from now on.
            steps: how often the weights have changed so far on each server.
        """

    @abstractmethod
    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """The arrays of a server's answer: keys, and sizes in float32 values; `length` as its status says."""

    @abstractmethod
    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
        """Let an answer's arrays, headers included and in the order of `wanted`, go into the model.

        Raises:
            CompressionError, SparseError: they are malformed.
        """

    @abstractmethod
    def answer_sizes(self, server: int) -> list[int]:
        """Sizes of the arrays of a server's answer in float32 values; an upper limit where they vary."""


class Packing(ABC):
    """One way to pack weights; makes the ends of both directions.

    Attributes:
        name: as error messages call it.
    """

    name: str

    @abstractmethod
    def encoder(self, rank: int) -> Encoder:
        """The end of a worker on the way up."""

    @abstractmethod
    def decoder(self, rank: int) -> Decoder:
        """The end of a worker on the way down."""


@dataclass(frozen=True)
class WorkerCodec:
    """How the weights of one worker's messages are packed and unpacked.

    Attributes:
        encoder: of its payloads.
        decoder: of the answers.
    """

    encoder: Encoder
    decoder: Decoder

    @property
    def keeps_common(self) -> bool:
        """See `Decoder`."""
        return self.decoder.keeps_common

    def begin(self, common: Common, steps: Sequence[int]) -> None:
        """See `Decoder.begin`."""
        self.decoder.begin(common, steps)

    def write(self, values: Source | Sparse, room: Room) -> Iterator[Packed]:
        """See `Encoder.write`."""
        return self.encoder.write(values, room)

    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """See `Decoder.wanted`."""
        return self.decoder.wanted(server, length)

    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
        """See `Decoder.read`."""
        self.decoder.read(server, arrays, length, model)

    def sizes(self, server: int) -> list[int]:
        """See `Encoder.sizes`."""
        return self.encoder.sizes(server)

    def answer_sizes(self, server: int) -> list[int]:
        """See `Decoder.answer_sizes`."""
        return self.decoder.answer_sizes(server)


def a_vector(values: Source | Sparse, codec: str) -> Source:
    """Values that have to be a vector; TypeError names the codec."""
    if isinstance(values, tuple):
        raise TypeError(f"the codec {codec!r} packs vectors, but was given a sparse step")
    return values


def a_step(values: Source | Sparse, codec: str) -> Sparse:
    """Values that have to be a sparse step; TypeError names the codec."""
    if not isinstance(values, tuple):
        raise TypeError(f"the codec {codec!r} packs sparse steps, but was given a vector")
    return values
