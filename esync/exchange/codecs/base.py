"""The interface of codecs, which pack the weights in messages between workers and servers.

Payloads are packed by an `Encoder` on the worker and unpacked by an `Uplink` on every server.
Answers are packed by a `Downlink` on every server and unpacked by a `Decoder` on the worker. Other
vectors, such as the statistics, are always sent uncompressed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...rules import Rule
from ..base import ModelSink
from .sparse import Sparse

#: Returns the memory for an array to send, given its key and its size in float32 values.
GetBuffer = Callable[[int, int], np.ndarray]
#: Common weights that a worker keeps for its decoder: bucket index → values, changed in place.
Common = Mapping[int, np.ndarray]
#: Returns the sum of a bucket, given its index and its size, and whether it is uninitialized, to be
#: overwritten as if it were zeros.
GetSum = Callable[[int, int], tuple[np.ndarray, bool]]


class PackedArray(NamedTuple):
    """A packed array, ready to be pushed.

    Attributes:
        shard: number of the server that it is for.
        key: of the key store.
        number: of the array in the payload, for its header.
    """

    shard: int
    key: int
    number: int


@runtime_checkable
class KeepsCommon(Protocol):
    """A model that keeps the common weights in addition to the worker's own."""

    def common_weights(self) -> np.ndarray | None:
        """Return the common weights, to be changed in place and then written to the model.

        None: the model does not have them, or only rounded ones.
        """


# --- on workers -----------------------------------------------------------------------------------


class Encoder(ABC):
    """Packs the weights' part of a worker's payloads."""

    @abstractmethod
    def write(self, values: Any, buffer: GetBuffer, compression: int = 0) -> Iterator[PackedArray]:
        """Pack a payload array by array, and keep the residual for the next one.

        Args:
            values: a vector of the weights' size (`base.Source`), or a sparse step (`sparse.Sparse`), depending on
                the codec.
            buffer: returns the memory for each array; called right before it is written.
            compression: number of the payload's compression, if the codec has several.

        Yields:
            The arrays, as soon as they are complete.
        """

    def sizes(self, server: int, compression: int = 0) -> list[int]:
        """Return the sizes of a payload's arrays for a server in float32 values, if the values do not matter."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the residual for a checkpoint; empty if the codec has none."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` has returned.

        Raises:
            ValueError: this codec has no residual, or one of another size.
        """
        raise ValueError(
            "it has values that were not sent yet, and this codec keeps none; go on with the --compression that it was "
            "written with"
        )


class Decoder(ABC):
    """Unpacks the weights' part of the servers' answers.

    Attributes:
        keeps_common: whether answers are differences between successive common weights, so `begin`
            has to be called first.
        lossy: whether the workers' weights may differ from those that the servers' rule works on.
    """

    keeps_common = False
    lossy = False

    def begin(self, common: Common, steps: Mapping[int, int]) -> None:  # noqa: B027 - most keep nothing
        """Set the common weights.

        Args:
            common: index of a bucket → values, changed in place from now on.
            steps: index of a bucket → number of changes of the weights at these values. It may
                differ between buckets, if a round has ended while they were fetched.
        """

    @abstractmethod
    def answer_arrays(self, server: int, form: int) -> list[tuple[int, int]]:
        """Return the arrays of a server's answer: keys, and sizes in float32 values.

        Args:
            server: its number.
            form: what the server's status says of the answer: its bytes where these vary, or the
                number of its compression where there are several.
        """

    @abstractmethod
    def read(self, server: int, arrays: Iterable[np.ndarray], form: int, model: ModelSink) -> None:
        """Unpack the arrays of an answer, and write them to the model.

        Args:
            server: number of the server.
            arrays: including headers, in the order of `answer_arrays`.
            form: see `answer_arrays`.
            model: receives the weights.
        """

    def answer_sizes(self, server: int, form: int) -> list[int]:
        """Return the sizes of the arrays of an answer in float32 values, if the values do not matter."""
        raise NotImplementedError


# --- on servers -----------------------------------------------------------------------------------


class Uplink:
    """Unpacks the weights' part of payloads, on one server.

    This base class unpacks nothing, for weights that are sent uncompressed.

    Attributes:
        rule: for payloads that are used at once; None: that of the specification.
    """

    rule: Rule | None = None

    def holds(self, key: int) -> bool:
        """Return whether a key is of packed arrays, not of an uncompressed bucket."""
        return False

    def add(self, packed: Mapping[int, np.ndarray], get_sum: GetSum, factor: float) -> None:
        """Add a worker's payload, times a factor, to the sums of its buckets.

        Args:
            packed: number of each packed array → its values.
            get_sum: returns the sum of a bucket.
            factor: of the payload.
        """

    def read(self, packed: Mapping[int, np.ndarray]) -> dict[int, Sparse]:
        """Return the content of a worker's packed arrays as input of the rule: bucket index → values."""
        return {}


class UpdatedBucket(NamedTuple):
    """One bucket of weights that the rule has updated.

    Attributes:
        bucket: index of the bucket.
        weights: the values that the rule works on, in the server's memory.
        common: the values published in channel 0, in host memory.
        value: the input of the rule.
        compression: number of the answer's compression, if the codec has several.
    """

    bucket: int
    weights: np.ndarray
    common: np.ndarray
    value: np.ndarray | Sparse
    compression: int = 0


class Downlink:
    """Packs the answers to the workers, on one server.

    This base class packs nothing, for weights that the server publishes uncompressed.

    Args:
        private: whether every worker receives the weights in a channel of its own, and the rule
            uses those that the worker was sent last (`rules.Step.sent`).

    Attributes:
        private: as given.
        keeps_exact: whether the rule works on exact weights, which only the server has, and channel
            0 has the common ones.
    """

    private = False
    keeps_exact = False

    def __init__(self, private: bool = False) -> None:
        self.private = private

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory of this downlink's state and answer arrays."""
        return 0

    def holds(self, key: int) -> bool:
        """Return whether a key is of packed answers."""
        return False

    def open(self, key: int, stored: np.ndarray) -> None:
        """Bind one of these keys to the array from which workers pull it."""

    def bind_weights(self, index: int, weights: np.ndarray) -> None:
        """Bind bucket `index` to the array of its weights, which the rule updates in place."""

    def init_channel(self, rank: int, index: int, sent: np.ndarray) -> None:
        """Set the initial values of a bucket in a worker's own channel.

        `sent` may be changed in place from now on.
        """

    def join(self, rank: int, lengths: np.ndarray) -> None:
        """Add or replace a worker, which pulls all weights before it sends anything."""

    def pack(self, updated: UpdatedBucket) -> None:
        """Start to pack a bucket of weights that the rule has updated."""

    def publish(self, ranks: Sequence[int], step: int, lengths: np.ndarray) -> None:
        """Publish the answers to workers after all updated buckets have been passed to `pack`.

        Args:
            ranks: of the workers whose payloads were used.
            step: number of changes of the weights, including this one.
            lengths: bytes of each worker's answer in the status; written if they vary.

        Raises:
            CompressionError: the weights cannot be packed.
        """

    def publish_to(self, rank: int, lengths: np.ndarray) -> None:
        """Publish the answer to one worker whose payload was not used; see `publish`."""


# --- on both --------------------------------------------------------------------------------------


class Codec(ABC):
    """A codec, which makes its parts on workers and servers."""

    @abstractmethod
    def encoder(self, rank: int) -> Encoder:
        """Make the encoder of a worker."""

    @abstractmethod
    def decoder(self, rank: int) -> Decoder:
        """Make the decoder of a worker."""

    @abstractmethod
    def uplink(self, server: int) -> Uplink:
        """Make the uplink of a server."""

    @abstractmethod
    def downlink(self, server: int) -> Downlink:
        """Make the downlink of a server."""


class WorkerCodec(NamedTuple):
    """The codec of one vector on a worker.

    Attributes:
        encoder: of its payloads.
        decoder: of the answers.
    """

    encoder: Encoder
    decoder: Decoder
