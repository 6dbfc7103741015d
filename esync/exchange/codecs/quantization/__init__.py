"""Quantization, for smaller synchronous exchanges: the quantizers of `--compression`.

"fp16", "4bit" and "2bit" pack every bucket of a model into a fixed number of bytes (`fp16`,
`four_bit`, `two_bit`). The sender adds the rounding error of a message to its next message (error
feedback: Seide et al., Interspeech 2014; in both directions: Tang et al., "DoubleSqueeze", ICML
2019). Uses neither MXNet nor the network.
"""

from collections.abc import Sequence

import numpy as np

from .base import AUTO, COMPRESSIONS, FOUR_BIT, FP16, NONE, TWO_BIT, CompressionError, Quantizer

__all__ = [
    "AUTO",
    "COMPRESSIONS",
    "FOUR_BIT",
    "FP16",
    "NONE",
    "TWO_BIT",
    "CompressionError",
    "Quantizer",
    "compile_loops",
    "quantizer_of",
]


def quantizer_of(compression: str, segments: Sequence[int]) -> Quantizer:
    """Return the quantizer of a bucket that consists of (parts of) tensors of these sizes."""
    if compression == FP16:
        from .fp16 import FP16Quantizer

        return FP16Quantizer(sum(segments))
    if compression == FOUR_BIT:
        from .four_bit import FourBitQuantizer

        return FourBitQuantizer(sum(segments))
    from .two_bit import TwoBitQuantizer

    return TwoBitQuantizer(segments)


def compile_loops(compression: str) -> None:
    """Compile the inner loops before the first exchange; it takes seconds, once on each machine."""
    quantizer = quantizer_of(compression, [8])
    values, packed = np.ones(8, np.float32), np.zeros(quantizer.elements, np.float32)
    quantizer.pack(values, packed)
    quantizer.pack_with(values, values.copy(), packed)
    quantizer.add(packed, values)
    quantizer.put(packed, values)
    quantizer.step(np.ones(8, np.float32), values, packed)
