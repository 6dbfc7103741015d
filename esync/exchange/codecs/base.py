"""The interface of codecs, which pack the weights of a message on workers and on servers.

A codec has a way up, from a worker to the servers, and a way down. Each way has two ends: an
`Encoder` on the worker and an `Uplink` on every server, a `Downlink` on every server and a
`Decoder` on the worker. Other vectors of a message, such as the statistics, always travel as they
are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...rules import Rule
from ..base import ModelSink, Source
from .quantization import CompressionError
from .sparse import Sparse, SparseError

#: Returns the memory of an array that is to be sent, given its key and its size in float32 values.
GetBuffer = Callable[[int, int], np.ndarray]
#: Common weights that a worker keeps for its decoder: bucket index → values, changed in place.
Common = Mapping[int, np.ndarray]
#: Returns the sum of a bucket, given its index and its size, and whether it is fresh: to be
#: overwritten, as if it were zeros.
GetSum = Callable[[int, int], tuple[np.ndarray, bool]]

#: Raised for packed arrays that cannot be read, and for weights that cannot be packed.
ERRORS = (CompressionError, SparseError)


class PackedArray(NamedTuple):
    """One array that has been filled and is to be pushed.

    Attributes:
        shard: the server that it is for.
        key: of the key store.
        place: its number among the arrays of a payload; goes into its header.
    """

    shard: int
    key: int
    place: int


@runtime_checkable
class KeepsCommon(Protocol):
    """A model that has the common weights beside its own."""

    def common_weights(self) -> np.ndarray | None:
        """Return the common weights, to be changed and then written to the model.

        None: there are none, or rounded ones.
        """


# --- the worker's ends ----------------------------------------------------------------------------


class Encoder(ABC):
    """Packs the weights' part of a worker's payloads."""

    @abstractmethod
    def write(self, values: Source | Sparse, buffer: GetBuffer) -> Iterator[PackedArray]:
        """Pack a payload, array by array; what it cannot express is kept for the next one.

        Args:
            values: a vector as long as the weights, or a sparse step where that is what is sent.
            buffer: returns the memory for each array; called right before the array is written.

        Yields:
            Each array as soon as it is complete.
        """

    @abstractmethod
    def sizes(self, server: int) -> list[int]:
        """Return the sizes of a payload's arrays for a server in float32 values.

        Where they vary, these are upper limits.
        """

    def state(self) -> dict[str, Any]:
        """Return what is kept for the next payload, for a checkpoint; empty where nothing is."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state` has returned.

        Raises:
            ValueError: this codec keeps nothing, or vectors of another size.
        """
        raise ValueError(
            "it has values that were not sent yet, and this codec keeps none; go on with the --compression that it was "
            "written with"
        )


class Decoder(ABC):
    """Unpacks the weights' part of the servers' answers.

    Attributes:
        keeps_common: whether answers lead from the common weights to the next ones, so that `begin`
            has to be called.
        lossy: whether the weights that workers hold may differ from those that the servers' rule
            works on.
    """

    keeps_common = False
    lossy = False

    def begin(self, common: Common, steps: Mapping[int, int]) -> None:  # noqa: B027 - most keep nothing
        """Start from these common weights.

        Args:
            common: changed in place from now on.
            steps: index of a bucket → number of times that the weights had changed when it was as
                it is here. A round of a dead worker may have ended since, or between two buckets.
        """

    @abstractmethod
    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """Return the arrays of a server's answer: keys, and sizes in float32 values.

        `length` is the one in the server's status.
        """

    @abstractmethod
    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: ModelSink) -> None:
        """Unpack an answer's arrays into the model.

        Args:
            server: the server that has answered.
            arrays: headers included, in the order of `wanted`.
            length: as for `wanted`.
            model: takes the weights.

        Raises:
            CompressionError, SparseError: they are malformed.
        """

    @abstractmethod
    def answer_sizes(self, server: int) -> list[int]:
        """Return the sizes of the arrays of a server's answer in float32 values.

        Where they vary, these are upper limits.
        """


# --- the server's ends ----------------------------------------------------------------------------


class Uplink(ABC):
    """Unpacks the weights' part of payloads, on one server.

    Attributes:
        rule: applied to a payload that is used at once, instead of the weights' own rule; None: the
            weights' own.
    """

    rule: Rule | None = None

    @abstractmethod
    def holds(self, key: int) -> bool:
        """Return whether packed arrays come with this key; all other keys have plain buckets."""

    @abstractmethod
    def add(self, packed: Mapping[int, np.ndarray], get_sum: GetSum, factor: float) -> None:
        """Add the content of a worker's packed arrays (place → values), times a factor, to a sum.

        Raises:
            CompressionError, SparseError: they are malformed.
        """

    def read(self, packed: Mapping[int, np.ndarray]) -> dict[int, Sparse]:
        """Return the content of a worker's packed arrays, for the rule: bucket index → values.

        Raises:
            SparseError: they are malformed.
        """
        raise NotImplementedError("compressed payloads are used in rounds only")


class UpdatedBucket(NamedTuple):
    """One bucket of weights that the rule has just changed.

    Attributes:
        bucket: its index.
        weights: the values that the rule works on, in the server's working memory.
        common: the values published in channel 0, in host memory.
        value: the input of the rule.
    """

    bucket: int
    weights: np.ndarray
    common: np.ndarray
    value: np.ndarray | Sparse


class Downlink:
    """Packs the answers to the workers after the weights of one server have changed.

    This one has nothing to pack: the server itself writes weights that travel as they are to where
    workers pull them from.

    Attributes:
        private: whether every worker is sent the weights in a channel of its own, and the rule is
            told which ones that worker was sent last (`rules.Step.sent`).
        keeps_exact: whether channel 0 has the common weights, and the rule works on others, which
            only the server has.
    """

    private = False
    keeps_exact = False

    @property
    def bytes_kept(self) -> int:
        """Bytes of what is kept to make answers from, and of the answers' arrays."""
        return 0

    def holds(self, key: int) -> bool:
        """Return whether packed arrays go out with this key."""
        return False

    def open(self, key: int, stored: np.ndarray) -> None:
        """Take the array from which one of these keys is pulled."""

    def place(self, index: int, weights: np.ndarray) -> None:
        """Take the array that has a bucket's weights from now on."""

    def init_channel(self, rank: int, index: int, sent: np.ndarray) -> None:
        """Note the initial values of a bucket in a worker's own channel.

        `sent` may be changed in place from now on.
        """

    def join(self, rank: int, lengths: np.ndarray) -> None:
        """Take in a worker, or its successor; it pulls all weights before it sends anything."""

    def pack(self, updated: UpdatedBucket) -> None:
        """Begin to pack a bucket of weights that the rule has changed."""

    def publish(self, ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """Put the answers to the workers where they pull them from, once all buckets have been given to `pack`.

        Args:
            ranks: whose payloads these were.
            step: number of times that the weights have changed, this time included.
            lengths: bytes of each worker's answer as the status says them; written where they vary.

        Raises:
            CompressionError: the weights cannot be packed.
        """

    def publish_to(self, rank: int, lengths: np.ndarray) -> None:
        """Answer a worker whose payload was not used with what it is owed; see `publish`."""


# --- both together --------------------------------------------------------------------------------


class Codec(ABC):
    """One way to pack weights; makes the ends of both directions.

    Attributes:
        name: in error messages.
    """

    name: str

    @abstractmethod
    def encoder(self, rank: int) -> Encoder:
        """Make the end of a worker on the way up."""

    @abstractmethod
    def decoder(self, rank: int) -> Decoder:
        """Make the end of a worker on the way down."""

    @abstractmethod
    def uplink(self, server: int) -> Uplink:
        """Make the end of a server on the way up."""

    @abstractmethod
    def downlink(self, server: int) -> Downlink:
        """Make the end of a server on the way down."""


class WorkerCodec(NamedTuple):
    """Both ends of one vector's codec on a worker.

    Attributes:
        encoder: of its payloads.
        decoder: of the answers.
    """

    encoder: Encoder
    decoder: Decoder


def require_vector(values: Source | Sparse, codec: str) -> Source:
    """Return values that have to be a vector; TypeError names the codec."""
    if isinstance(values, tuple):
        raise TypeError(f"the codec {codec!r} packs vectors, but was given a sparse step")
    return values


def require_step(values: Source | Sparse, codec: str) -> Sparse:
    """Return values that have to be a sparse step; TypeError names the codec."""
    if not isinstance(values, tuple):
        raise TypeError(f"the codec {codec!r} packs sparse steps, but was given a vector")
    return values
