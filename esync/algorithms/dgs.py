"""DGS: dual-way gradient sparsification with sparsification-aware momentum (Yan et al., ICPP 2020)."""

from typing import Any

from .. import config
from .sparse_async import SparseAsyncWithMomentum


class DGS(SparseAsyncWithMomentum):
    """Momentum that is applied once per value sent, not once per iteration that it waits.

    Args:
        ratio: share of each tensor's values that a worker sends.
        momentum: where the optimizer has none of its own. Asynchrony adds momentum, so it should fall with the number
            of workers: the paper takes 0.7 for up to 16 workers and 0.3 for 32.
        secondary_ratio: share of the values that the server answers with; 0: all that has changed.
        values: "float32" or "float16", on the wire.
        dense_below: tensors with fewer values are sent whole; 0: none is.
        statistics: as in `SparseAsync`.
    """

    name = "dgs"

    def __init__(
        self,
        ratio: float = config.SPARSE_RATIO,
        momentum: float = config.DGS_MOMENTUM,
        secondary_ratio: float = config.SPARSE_SECONDARY_RATIO,
        values: str = config.SPARSE_VALUES,
        dense_below: int = config.SPARSE_DENSE_BELOW,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(ratio, momentum, secondary_ratio, values, dense_below, statistics)

    def compressor(self, selection: Any, workers: int) -> Any:
        """SAMomentum."""
        from ..sparse.compressors import SAMomentum

        return SAMomentum(selection, self._values)
