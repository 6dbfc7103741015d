"""DGC-async: deep gradient compression (Lin et al., ICLR 2018) in asynchronous SGD, as DGS is compared with it."""

from typing import Any

from .. import config
from .sparse_async import SparseAsyncWithMomentum


class DGCAsync(SparseAsyncWithMomentum):
    """Momentum correction and factor masking; clipping and warm-up where they are asked for.

    Args:
        ratio: share of each tensor's values that a worker sends.
        momentum: where the optimizer has none of its own.
        secondary_ratio: share of the values that the server answers with; 0: all that has changed.
        values: "float32" or "float16", on the wire.
        dense_below: tensors with fewer values are sent whole; 0: none is.
        clip: largest norm of the mean gradient of a batch, divided by √workers; 0: no limit.
        warm_up: exchanges of a worker over which its ratio falls to its final value.
        statistics: as in `SparseAsync`.
    """

    name = "dgc-async"

    def __init__(
        self,
        ratio: float = config.SPARSE_RATIO,
        momentum: float = config.DGC_MOMENTUM,
        secondary_ratio: float = config.SPARSE_SECONDARY_RATIO,
        values: str = config.SPARSE_VALUES,
        dense_below: int = config.SPARSE_DENSE_BELOW,
        clip: float = config.DGC_CLIP,
        warm_up: int = config.DGC_WARM_UP,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(ratio, momentum, secondary_ratio, values, dense_below, statistics)
        if clip < 0 or warm_up < 0:
            raise ValueError(f"clip is {clip!r} and warm_up is {warm_up!r}, but both should be 0 or more")
        self._clip, self._warm_up = clip, warm_up

    def compressor(self, selection: Any, workers: int) -> Any:
        """DGC."""
        from ..sparse.compressors import DeepGradientCompression

        return DeepGradientCompression(selection, self._values, self._clip, workers, self._warm_up)
