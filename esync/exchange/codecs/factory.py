"""The choice of the codec for a specification."""

from ..protocol.layout import Layout
from ..protocol.specification import Specification
from .base import Codec, WorkerCodec
from .quantization import AUTO, COMPRESSIONS, NONE
from .sparse import Differences
from .uncompressed import UncompressedCodec


def worker_codec(specification: Specification, layout: Layout, slots: int, rank: int) -> WorkerCodec:
    """Return a worker's encoder and decoder of the weights.

    Args:
        specification: of the exchange.
        layout: how the model is cut into buckets.
        slots: number of workers.
        rank: of this worker.
    """
    codec = codec_of(specification, layout, slots)
    return WorkerCodec(codec.encoder(rank), codec.decoder(rank))


def codec_of(specification: Specification, layout: Layout, slots: int) -> Codec:
    """Return the codec of the weights for a specification.

    Raises:
        ValueError: the codec is unknown, or does not support exchanges of that kind.
    """
    compression = specification.compression
    if specification.sparse:
        from .sparse_difference import DifferenceCodec  # compiles its inner loops

        if specification.synchronous:
            raise ValueError("sparse steps have no use for rounds: make the exchange asynchronous")
        options = dict(specification.options)
        tensors = options.pop("tensors")
        return DifferenceCodec(Differences(**options), layout, slots, tensors)
    if compression == NONE:
        return UncompressedCodec(layout, specification.private)
    from .buckets import BucketCodec  # compiles its inner loops

    if compression not in (AUTO, *COMPRESSIONS):
        raise ValueError(
            f"compression is {compression!r}, but should be one of {NONE}, {', '.join(COMPRESSIONS)}, {AUTO}"
        )
    if not specification.synchronous:
        raise ValueError(
            f"compression {compression!r} needs rounds, after which all workers hold the same weights: make the "
            "exchange synchronous, or leave the compression out"
        )
    compressions = list(COMPRESSIONS) if compression == AUTO else [compression]
    return BucketCodec(compressions, layout, specification.tensors)
