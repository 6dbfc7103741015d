"""The choice of codecs: which ones a specification asks for, and which of the store's keys they use."""

from collections.abc import Sequence

from ..protocol.layout import Layout
from ..protocol.specification import Specification
from .base import Packing, WorkerCodec
from .none import PlainPacking
from .quantization import NONE, TOP_K, Compression
from .sparse import Differences

#: How weights travel one way.
Way = Compression | Differences


def codec_of(specification: Specification, layout: Layout, slots: int, rank: int) -> WorkerCodec:
    """The codec of a worker.

    Args:
        specification: what the workers ask for.
        layout: how the model is cut.
        slots: number of workers.
        rank: of this one.
    """
    up, down = packings_of(specification, layout, slots)
    return WorkerCodec(up.encoder(rank), down.decoder(rank))


def packings_of(specification: Specification, layout: Layout, slots: int) -> tuple[Packing, Packing]:
    """Return how weights are packed in each direction, as a specification asks for it."""
    if specification.sparse:
        options = dict(specification.options)
        tensors = options.pop("tensors")
        both: Way = Differences(**options)
        return pair(both, both, layout, slots, tensors, specification.private)
    both = Compression.parse(specification.compression)
    return pair(both, both, layout, slots, specification.tensors, specification.private)


def pair(
    up: Way, down: Way, layout: Layout, slots: int, tensors: Sequence[int] = (), private: bool = False
) -> tuple[Packing, Packing]:
    """Return how weights are packed in each direction.

    Args:
        up: of the payloads.
        down: of the answers.
        layout: how the model is cut.
        slots: number of workers.
        tensors: sizes of the tensors that the weights consist of, for all ways but "none".
        private: every worker has a channel of its own for what travels as it is.
    """
    free = slots + 1 if private else 1  # the first channel that no dense buckets use
    packing = _packing(up, layout, slots, tensors, private, free)
    if up == down:
        return packing, packing
    return packing, _packing(down, layout, slots, tensors, private, free + 1)


def _packing(way: Way, layout: Layout, slots: int, tensors: Sequence[int], private: bool, channel: int) -> Packing:
    if isinstance(way, Differences):
        from .sparse_difference import DifferencePacking  # compiles its inner loops

        return DifferencePacking(way, layout, slots, tensors)
    if way.kind == NONE:
        return PlainPacking(layout, private)
    if way.kind == TOP_K:
        from .top_k import TopKPacking  # compiles its inner loops

        return TopKPacking(way, layout, slots, tensors)
    from .buckets import BucketPacking  # compiles its inner loops

    return BucketPacking(way, layout, tensors, channel)
