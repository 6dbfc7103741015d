"""The transfer of vectors between a worker and the servers: of their values, or of their sizes only.

Values are sent array by array, packed by the codec of each vector. The simulator may exchange a
small model that represents a larger one; then only arrays of the larger sizes are sent, without
values.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from typing_extensions import Self, override

from ..base import ModelSink, Source
from ..codecs.base import KeepsCommon, WorkerCodec
from ..codecs.buckets import BucketEncoder
from ..codecs.uncompressed import UncompressedDecoder, uncompressed_codec
from . import wire
from .layout import WEIGHTS, Layout
from .pending import ReceivedModel
from .specification import Specification
from .store import ArraySpec, Store

#: The key of arrays without values.
NO_KEY = -1


@dataclass(frozen=True)
class Answer:
    """The servers' answers to one exchange, and where they go.

    Attributes:
        names: of the requested vectors, in the layout's order.
        model: receives them.
        forms: of each server's answer; see `Decoder.answer_arrays`.
        specs: of the arrays, by server and by vector.
    """

    names: Sequence[str]
    model: ModelSink
    forms: Sequence[int]
    specs: Sequence[Sequence[Sequence[ArraySpec]]]

    def elements(self, server: int) -> int:
        """Return the number of values in a server's arrays, including headers."""
        return sum(elements for part in self.specs[server] for _, elements in part)


class Transfer(ABC):
    """Moves vectors between this worker and the servers, through a store.

    Args:
        specification: of the exchange.
        store: connection to the servers.
        layout: how the model is cut into buckets.
        codecs: name of each vector → its codec on this worker, in the layout's order.
        beat: sends the servers a heartbeat if one is due.

    Attributes:
        codecs: as given.
    """

    def __init__(
        self,
        specification: Specification,
        store: Store,
        layout: Layout,
        codecs: Mapping[str, WorkerCodec],
        beat: Callable[[], None],
    ) -> None:
        self._specification, self._store, self._layout, self._beat = specification, store, layout, beat
        self.codecs = codecs

    @property
    def residual_encoder(self) -> BucketEncoder | None:
        """The encoder of the weights, if it keeps a residual; else None."""
        return None

    @abstractmethod
    def shared_elements(self, elements: int) -> int:
        """Return the size of the shared memory that the workers of a host need for an array, in float32 values."""

    @abstractmethod
    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> None:
        """Set up the keys with the vectors of rank 0, and fetch them to the model."""

    @abstractmethod
    def send(
        self,
        vectors: Mapping[str, Any],
        sequence: int,
        servers: Collection[int] | None = None,
        attempt: int = 0,
        compression: int = 0,
    ) -> list[int]:
        """Send the arrays of a payload.

        Args:
            vectors: name → values.
            sequence: number of the exchange.
            servers: their numbers; None: all.
            attempt: number of the attempt to send this payload, from 0.
            compression: of the weights; see `Encoder.write`.

        Returns:
            Number of arrays that the commit has to wait for, by server.
        """

    @abstractmethod
    def answer_arrays(self, names: Sequence[str], forms: Sequence[int]) -> Sequence[Sequence[Sequence[ArraySpec]]]:
        """Return the arrays of the servers' answers, by server and by vector.

        Args:
            names: of the vectors, in the layout's order.
            forms: of each server's answer; see `Decoder.answer_arrays`.
        """

    @abstractmethod
    def decode(self, server: int, arrays: Iterable[np.ndarray], answer: Answer) -> None:
        """Write the arrays of a server's answer, in their order, to the model; all are consumed."""

    @abstractmethod
    def fetch_common(self, names: Sequence[str], model: ModelSink) -> None:
        """Fetch vectors from all servers, the weights uncompressed.

        A worker that has missed a round needs them, because compressed answers are differences
        between successive rounds.
        """

    def answer(self, names: Sequence[str], model: ModelSink, forms: Sequence[int]) -> Answer:
        """Return the answers with these vectors; see `Answer` for the arguments."""
        return Answer(names, model, forms, self.answer_arrays(names, forms))

    def fetch(self, names: Sequence[str], model: ModelSink, forms: Sequence[int], servers: Collection[int]) -> None:
        """Fetch vectors from these servers, and write them to the model as they arrive."""
        answer = self.answer(names, model, forms)
        requests = [(server, self.request(server, answer)) for server in sorted(servers)]
        for server, arrays in requests:
            self.decode(server, arrays, answer)

    def request(self, server: int, answer: Answer) -> Iterator[np.ndarray]:
        """Request a server's arrays, and return an iterator over them as they arrive.

        Heartbeats are sent in between, because the transfer may take longer than the lease.
        """
        return self._beating(self._store.fetch(server, list(chain.from_iterable(answer.specs[server]))))

    def _beating(self, arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for array in arrays:
            self._beat()
            yield array

    def _uncompressed(self, names: Iterable[str]) -> Self:
        """Return a transfer of uncompressed vectors, through the keys that all workers share."""
        codecs = {name: uncompressed_codec(self._layout, 0, name) for name in names}
        return type(self)(self._specification, self._store, self._layout, codecs, self._beat)


class ValueTransfer(Transfer):
    """Moves the values of vectors."""

    @property
    def residual_encoder(self) -> BucketEncoder | None:
        """See `Transfer.residual_encoder`."""
        encoder = self.codecs[WEIGHTS].encoder
        return encoder if isinstance(encoder, BucketEncoder) else None

    @override
    def shared_elements(self, elements: int) -> int:
        return elements

    @override
    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> None:
        store, private = self._store, self._specification.private
        common, decoder = self._uncompressed(self._layout.sizes), self.codecs[WEIGHTS].decoder
        store.init_shared(common.buffered(vectors))
        # A copy of the exact values, because the model may round them.
        received = ReceivedModel(self._layout.sizes) if private or decoder.keeps_common else None
        common.fetch(list(self._layout.sizes), received or model, [0] * store.servers, range(store.servers))
        if received is not None:
            received.deliver(model, self._layout.sizes)
        if received is not None and private:
            codecs = {WEIGHTS: uncompressed_codec(self._layout, store.rank + 1, WEIGHTS)}
            private_transfer = ValueTransfer(self._specification, store, self._layout, codecs, self._beat)
            store.open(private_transfer.buffered(received.vectors))
        if received is not None or self._specification.sparse:
            self._release_common()
        if received is not None and decoder.keeps_common:
            decoder.begin(self._common_memory(model, received), common.steps)

    @override
    def send(
        self,
        vectors: Mapping[str, Any],
        sequence: int,
        servers: Collection[int] | None = None,
        attempt: int = 0,
        compression: int = 0,
    ) -> list[int]:
        store = self._store
        if attempt:
            store.flush()  # the arrays of an earlier attempt are sent from the same memory
        sent = [0] * store.servers
        for server, spec in self._write(vectors, wire.PAYLOAD, sequence, attempt, compression):
            if servers is None or server in servers:
                store.send(server, (spec,))
                sent[server] += 1
        return sent

    @override
    def answer_arrays(self, names: Sequence[str], forms: Sequence[int]) -> Sequence[Sequence[Sequence[ArraySpec]]]:
        return [
            [wire.with_headers(self.codecs[name].decoder.answer_arrays(server, form)) for name in names]
            for server, form in enumerate(forms)
        ]

    @override
    def decode(self, server: int, arrays: Iterable[np.ndarray], answer: Answer) -> None:
        remaining = iter(arrays)
        for name, part in zip(answer.names, answer.specs[server], strict=True):
            decoder = self.codecs[name].decoder
            decoder.read(server, islice(remaining, len(part)), answer.forms[server], answer.model)

    @override
    def fetch_common(self, names: Sequence[str], model: ModelSink) -> None:
        common, received = self._uncompressed(names), ReceivedModel(self._layout.sizes)
        common.fetch(names, received, [0] * self._store.servers, range(self._store.servers))
        received.deliver(model, names)
        self._release_common()
        self.codecs[WEIGHTS].decoder.begin(self._common_memory(model, received), common.steps)

    @property
    def steps(self) -> Mapping[int, int]:
        """Index of a bucket of weights → number of changes that it had when it was read."""
        decoder = self.codecs[WEIGHTS].decoder
        assert isinstance(decoder, UncompressedDecoder)
        return decoder.steps

    def buffered(self, vectors: Mapping[str, Source]) -> list[list[ArraySpec]]:
        """Write the initial values of vectors to the store's buffers; return the arrays by server."""
        by_server: list[list[ArraySpec]] = [[] for _ in range(self._store.servers)]
        for server, spec in self._write(vectors, wire.NOTHING, 0):
            by_server[server].append(spec)
        return by_server

    def _write(
        self, vectors: Mapping[str, Any], kind: int, sequence: int, attempt: int = 0, compression: int = 0
    ) -> Iterator[tuple[int, ArraySpec]]:
        """Write vectors to the store's buffers; yield the server and the spec of each array."""
        store, buffers = self._store, dict[int, np.ndarray]()

        def buffer(key: int, elements: int) -> np.ndarray:
            buffers[key] = store.buffer(key, wire.HEADER_ELEMENTS + elements)
            return buffers[key][wire.HEADER_ELEMENTS :]

        for name, codec in self.codecs.items():
            if name in vectors:
                for server, key, number in codec.encoder.write(vectors[name], buffer, compression):
                    array = buffers.pop(key)
                    wire.stamp(array, kind, store.rank, store.nonce, sequence, number, attempt)
                    yield server, (key, array.size)

    def _release_common(self) -> None:
        """Release the shared keys of the weights, which are sent through other keys from now on."""
        self._store.release([self._layout.key(bucket) for bucket in self._layout.of(WEIGHTS)])

    def _common_memory(self, model: ModelSink, received: ReceivedModel) -> dict[int, np.ndarray]:
        """Return the memory of the common weights: index of a bucket → its values.

        It is that of the model if the model keeps them, which saves a copy in every exchange.
        Otherwise, and if the worker trains during exchanges, it is that of the received model.
        """
        common = model.common_weights() if isinstance(model, KeepsCommon) and not self._specification.overlap else None
        weights = received.vectors[WEIGHTS].values if common is None else common
        return {bucket.index: weights[bucket.start : bucket.stop] for bucket in self._layout.of(WEIGHTS)}


class SizeTransfer(Transfer):
    """Moves arrays of the vectors' sizes, without values."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._specs: dict[tuple[bool, tuple[str, ...], tuple[int, ...]], list[list[list[ArraySpec]]]] = {}

    @override
    def shared_elements(self, elements: int) -> int:
        return 0

    @override
    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> None:
        names, forms = list(self._layout.sizes), [0] * self._store.servers
        common = self._uncompressed(names)
        self._store.init_shared([list(chain.from_iterable(part)) for part in common.answer_arrays(names, forms)])
        common.fetch(names, model, forms, range(self._store.servers))

    @override
    def send(
        self,
        vectors: Mapping[str, Any],
        sequence: int,
        servers: Collection[int] | None = None,
        attempt: int = 0,
        compression: int = 0,
    ) -> list[int]:
        names = [name for name in self.codecs if name in vectors]
        specs = self._sizes(names, [compression] * self._store.servers, answers=False)
        for server in range(self._store.servers) if servers is None else servers:
            self._store.send(server, chain.from_iterable(specs[server]))
        return [0] * self._store.servers

    @override
    def answer_arrays(self, names: Sequence[str], forms: Sequence[int]) -> Sequence[Sequence[Sequence[ArraySpec]]]:
        return self._sizes(names, forms, answers=True)

    @override
    def decode(self, server: int, arrays: Iterable[np.ndarray], answer: Answer) -> None:
        for _ in arrays:
            pass

    @override
    def fetch_common(self, names: Sequence[str], model: ModelSink) -> None:
        self._uncompressed(names).fetch(names, model, [0] * self._store.servers, range(self._store.servers))

    def _sizes(self, names: Sequence[str], forms: Sequence[int], answers: bool) -> list[list[list[ArraySpec]]]:
        """Return the arrays of payloads, or of answers, by server and by vector; forms as in the status."""
        key = answers, tuple(names), tuple(forms)
        if key not in self._specs:
            codecs = [self.codecs[name] for name in names]
            self._specs[key] = [
                [
                    wire.with_headers(
                        (NO_KEY, elements)
                        for elements in (
                            codec.decoder.answer_sizes(server, form) if answers else codec.encoder.sizes(server, form)
                        )
                    )
                    for codec in codecs
                ]
                for server, form in enumerate(forms)
            ]
        return self._specs[key]
