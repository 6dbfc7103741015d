"""The values of `--compression`, and the interface of the quantizers of its buckets."""

from abc import ABC, abstractmethod

import numpy as np

from ....runtime.errors import ExpectedError

#: Values of `--compression`.
NONE, FP16, FOUR_BIT, TWO_BIT, AUTO = "none", "fp16", "4bit", "2bit", "auto"
#: What "auto" chooses from, the finest one first, and the bits of a value.
COMPRESSIONS = {FP16: 16.0, FOUR_BIT: 4.125, TWO_BIT: 2.0}


class CompressionError(ExpectedError):
    """Values cannot be compressed; the message says why."""


class Quantizer(ABC):
    """Packs the values of one bucket into a fixed number of bytes.

    Subclasses may override `pack_with`, `put` and `step` for fewer passes through memory, with the
    same results bit for bit.

    Attributes:
        elements: size of a packed bucket in float32 values.
    """

    elements: int

    @abstractmethod
    def pack(self, values: np.ndarray, packed: np.ndarray) -> None:
        """Pack values, and replace them by the rounding error.

        The packed values and the rounding error add up to the given values exactly.

        Args:
            values: float32; changed.
            packed: output, `elements` values of float32.

        Raises:
            CompressionError: a value is infinite or not a number; both arrays are invalid then.
        """

    @abstractmethod
    def add(self, packed: np.ndarray, target: np.ndarray) -> None:
        """Add packed values to `target` (float32), with the same result on all machines."""

    def pack_with(self, residual: np.ndarray, values: np.ndarray, packed: np.ndarray) -> None:
        """Pack `residual + values`; the rounding error replaces `residual`."""
        residual += values
        self.pack(residual, packed)

    def put(self, packed: np.ndarray, target: np.ndarray) -> None:
        """Write packed values to `target`."""
        target.fill(0)
        self.add(packed, target)

    def step(self, exact: np.ndarray, common: np.ndarray, packed: np.ndarray) -> None:
        """Pack exact − common, and add the packed values to `common`."""
        self.pack(exact - common, packed)
        self.add(packed, common)


#: Error message for values that cannot be sent.
NOT_FINITE = "what is to be sent is infinite or not a number: the training has diverged; try a smaller learning rate"
