"""The worker's side of compressed exchanges on MXNet's key store: packed payloads up, packed answers back."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ..base import Model, Payload, Result, Source
from ..codecs.base import KeepsCommon
from ..codecs.choice import codec_of
from ..protocol.layout import WEIGHTS
from .kvstore_worker import KVStoreExchange
from .sparse_worker import Pieces


class CompressedExchange(KVStoreExchange):
    """Sends the weights' part of a payload packed, and takes the packed steps of the common weights.

    The common weights are kept where the model has them already, so that no exchange has to copy them; where
    it has none, or they may be needed while an exchange is under way, in the buffers of the buckets.
    """

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`; the model comes as float32, as the other workers hold it."""
        result = super().begin(vectors, model)
        specification, layout = self._specification, self._layout
        kept = model.common_weights() if isinstance(model, KeepsCommon) and not specification.overlap else None
        self._codec = codec_of(specification, layout, self.workers, self.rank)
        self._codec.begin(
            {
                bucket.index: self._buckets.values(bucket) if kept is None else kept[bucket.start : bucket.stop]
                for bucket in layout.buckets
                if bucket.vector == WEIGHTS
            },
            [int(status["step"]) for status in self.line.statuses()],  # no round can end without this worker
        )
        self._pieces = Pieces(self.line)
        return result

    def pull(self, model: Model, vectors: Collection[str]) -> None:
        """Pull the other vectors as they are, and what leads the weights to those that all workers have now."""
        self.line.hold()
        with self.line.patience("the model from"):
            self._buckets.pull(model, set(vectors) - {WEIGHTS}, self._channel)
            for shard in range(self.line.servers):
                length = int(self.line.status(shard)["answer"][self.rank])
                arrays = self._pieces.fetch(self._codec.wanted(shard, length))
                self._codec.read(shard, arrays, length, model)

    def _push(self, payload: Payload) -> Iterator[int]:
        """Push a payload array by array; the server of each."""
        if WEIGHTS in payload.vectors:
            for shard, key, place in self._codec.write(payload.vectors[WEIGHTS], self._pieces.room):
                self._pieces.send(key, place)
                yield shard
        others = {name: source for name, source in payload.vectors.items() if name != WEIGHTS}
        yield from super()._push(replace(payload, vectors=others))
