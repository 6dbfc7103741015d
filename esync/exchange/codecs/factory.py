"""The choice of codecs: those that a specification asks for, and the store's keys for them."""

from collections.abc import Sequence

from ..protocol.layout import Layout
from ..protocol.specification import Specification
from .base import Codec, WorkerCodec
from .quantization import NONE, TOP_K, Compression
from .sparse import Differences
from .uncompressed import UncompressedCodec

#: The packing of one way.
Way = Compression | Differences


def worker_codec(specification: Specification, layout: Layout, slots: int, rank: int) -> WorkerCodec:
    """Return the codec of a worker.

    Args:
        specification: what the workers ask for.
        layout: how the model is cut into buckets.
        slots: number of workers.
        rank: of this one.
    """
    up, down = codecs_of(specification, layout, slots)
    return WorkerCodec(up.encoder(rank), down.decoder(rank))


def codecs_of(specification: Specification, layout: Layout, slots: int) -> tuple[Codec, Codec]:
    """Return the packing of weights in each direction that a specification asks for."""
    if specification.sparse:
        options = dict(specification.options)
        tensors = options.pop("tensors")
        both: Way = Differences(**options)
        return make_codecs(both, both, layout, slots, tensors, specification.private)
    both = Compression.parse(specification.compression)
    return make_codecs(both, both, layout, slots, specification.tensors, specification.private)


def make_codecs(
    up: Way, down: Way, layout: Layout, slots: int, tensors: Sequence[int] = (), private: bool = False
) -> tuple[Codec, Codec]:
    """Return the packing of weights in each direction.

    Args:
        up: of the payloads.
        down: of the answers.
        layout: how the model is cut into buckets.
        slots: number of workers.
        tensors: sizes of the tensors that the weights consist of, for all ways but "none".
        private: every worker has a channel of its own for what travels as it is.
    """
    free = slots + 1 if private else 1  # the first channel that no dense buckets use
    codec = _make_codec(up, layout, slots, tensors, private, free)
    if up == down:
        return codec, codec
    return codec, _make_codec(down, layout, slots, tensors, private, free + 1)


def _make_codec(way: Way, layout: Layout, slots: int, tensors: Sequence[int], private: bool, channel: int) -> Codec:
    if isinstance(way, Differences):
        from .sparse_difference import DifferenceCodec  # compiles its inner loops

        return DifferenceCodec(way, layout, slots, tensors)
    if way.kind == NONE:
        return UncompressedCodec(layout, private)
    if way.kind == TOP_K:
        from .top_k import TopKCodec  # compiles its inner loops

        return TopKCodec(way, layout, slots, tensors)
    from .buckets import BucketCodec  # compiles its inner loops

    return BucketCodec(way, layout, tensors, channel)
