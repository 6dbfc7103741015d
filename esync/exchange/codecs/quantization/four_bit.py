"""--compression 4bit: every value becomes a multiple of a unit from −7 to 7, with a unit for each block.

    unit of each block (float32) | codes of each block, two in a byte: 8 plus the multiple

Blocks have 256 values, as in block-wise quantization (Dettmers et al., ICLR 2022), so one large
value makes only its own block coarse. The unit is a seventh of the block's largest magnitude. In a
byte the lower half is a value of the first half of the block, the upper half the value as far into
the second half.
"""

import numpy as np
from typing_extensions import override

from . import kernels
from .base import NOT_FINITE, CompressionError, Quantizer

#: Values in a block.
BLOCK = 256


class FourBitQuantizer(Quantizer):
    """Packs a bucket of `size` values; see `Quantizer`."""

    def __init__(self, size: int) -> None:
        self._blocks = -(-size // BLOCK)
        full, rest = divmod(size, BLOCK)
        self._bytes = full * BLOCK // 2 + -(-rest // 2)
        self.elements = self._blocks + -(-self._bytes // 4)

    @override
    def pack(self, values: np.ndarray, packed: np.ndarray) -> None:
        self._check_finite(kernels.to_four_bits(values, BLOCK, *self._parts(packed)))

    @override
    def pack_with(self, rest: np.ndarray, more: np.ndarray, packed: np.ndarray) -> None:
        self._check_finite(kernels.gather_four_bits(rest, more, BLOCK, *self._parts(packed)))

    @override
    def step(self, exact: np.ndarray, common: np.ndarray, packed: np.ndarray) -> None:
        self._check_finite(kernels.step_by_four_bits(exact, common, BLOCK, *self._parts(packed)))

    @override
    def add(self, packed: np.ndarray, target: np.ndarray) -> None:
        kernels.add_four_bits(*self._parts(packed), BLOCK, target)

    @override
    def put(self, packed: np.ndarray, target: np.ndarray) -> None:
        kernels.put_four_bits(*self._parts(packed), BLOCK, target)

    # --- helpers ----------------------------------------------------------------------------------

    def _parts(self, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the units and the codes of a packed bucket; clear the unused bytes after them."""
        codes = packed[self._blocks :].view(np.uint8)
        codes[self._bytes :] = 0
        return packed[: self._blocks], codes[: self._bytes]

    @staticmethod
    def _check_finite(finite: bool) -> None:
        if not finite:
            raise CompressionError(NOT_FINITE)
