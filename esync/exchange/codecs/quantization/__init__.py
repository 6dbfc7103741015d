"""Quantization, for smaller synchronous exchanges: the values of `--compression`, and the codecs of buckets.

Free of MXNet and of the network. "fp16" and "2bit" pack every bucket of a model into a fixed number
of bytes (`fp16`, `two_bit`); "topk:RATIO" sends what is largest as sparse messages
(`esync.exchange.codecs.sparse`; with local iterations: Basu et al., "Qsparse-local-SGD", NeurIPS
2019). Whatever a message does not say stays with its sender and goes into the next one (error
feedback: Seide et al., Interspeech 2014; in both directions: Tang et al., "DoubleSqueeze", ICML
2019).
"""

from collections.abc import Sequence

import numpy as np

from .base import FP16, GRAMMAR, NONE, TOP_K, TWO_BIT, BucketCodec, Compression, CompressionError

__all__ = [
    "FP16",
    "GRAMMAR",
    "NONE",
    "TOP_K",
    "TWO_BIT",
    "BucketCodec",
    "Compression",
    "CompressionError",
    "codec_of",
    "compile_loops",
]


def codec_of(compression: Compression, segments: Sequence[int]) -> BucketCodec:
    """The codec of a bucket that consists of (parts of) tensors of these sizes; for "fp16" and "2bit"."""
    if compression.kind == FP16:
        from .fp16 import FP16Codec

        return FP16Codec(sum(segments))
    if compression.kind == TWO_BIT:
        from .two_bit import TwoBitCodec

        return TwoBitCodec(segments)
    raise ValueError(f"compression {compression} does not pack buckets")


def compile_loops(compression: Compression) -> None:
    """Compile the inner loops (once on each machine, some seconds), so that no exchange has to wait for that."""
    codec = codec_of(compression, [8])
    values, packed = np.ones(8, np.float32), np.zeros(codec.elements, np.float32)
    codec.pack(values, packed)
    codec.pack_with(values, values.copy(), packed)
    codec.add(packed, values)
    codec.put(packed, values)
    codec.step(np.ones(8, np.float32), values, packed)
