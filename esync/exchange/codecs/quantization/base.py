"""The values of `--compression`, and the interface of the quantizers of its buckets."""

from abc import ABC, abstractmethod

import numpy as np

from ....runtime.errors import ExpectedError

#: Values of `--compression`.
NONE, FP16, TWO_BIT = "none", "fp16", "2bit"


class CompressionError(ExpectedError):
    """Values cannot be compressed, or a packed bucket cannot be read; the message says why."""


class Quantizer(ABC):
    """Packs the values of one bucket into a fixed number of bytes.

    A worker and a server use `pack_with`, `put` and `step`; a quantizer may do them in fewer passes
    through memory, with the same bits.

    Attributes:
        elements: float32 values that a packed bucket takes.
    """

    elements: int

    @abstractmethod
    def pack(self, values: np.ndarray, packed: np.ndarray) -> None:
        """Pack values, and leave in them what the packed ones do not express.

        Packed and left add up to the given values, to the last bit.

        Args:
            values: float32; changed.
            packed: `elements` values of float32, written.

        Raises:
            CompressionError: a value is infinite or not a number; the arrays are then of no use.
        """

    @abstractmethod
    def add(self, packed: np.ndarray, target: np.ndarray) -> None:
        """Add the content of packed values to `target` (float32). All who do so get the same bits.

        Raises:
            CompressionError: no quantizer of this kind has written them; `target` is as it was.
        """

    def pack_with(self, rest: np.ndarray, more: np.ndarray, packed: np.ndarray) -> None:
        """Pack rest + more; what is not expressed stays in `rest`."""
        rest += more
        self.pack(rest, packed)

    def put(self, packed: np.ndarray, target: np.ndarray) -> None:
        """Write the content of packed values to `target`, whatever it held before."""
        target.fill(0)
        self.add(packed, target)

    def step(self, exact: np.ndarray, common: np.ndarray, packed: np.ndarray) -> None:
        """Pack exact − common, and add the packed values to `common`."""
        self.pack(exact - common, packed)
        self.add(packed, common)


#: Message of a worker whose values cannot be sent.
NOT_FINITE = "what is to be sent is infinite or not a number: the training has diverged; try a smaller learning rate"
