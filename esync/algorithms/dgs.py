"""DGS: dual-way gradient sparsification, sparsification-aware momentum (Yan et al., ICPP 2020)."""

from typing import Any

from .. import config
from .options import option
from .registry import register
from .sparse_async import SparseAsyncWithMomentum
from .styles import Style


@register("dgs", label="DGS", style=Style("#F0E442", (0, (3, 1, 1, 1, 1, 1, 1, 1)), "*"))
class DGS(SparseAsyncWithMomentum):
    """Momentum that is applied once per value sent, not once per iteration that it waits.

    Asynchrony adds momentum, so the momentum should fall with the number of workers: the paper
    takes 0.7 for up to 16 workers and 0.3 for 32.
    """

    class Options(SparseAsyncWithMomentum.Options):
        """The options of the base class, with SAMomentum's default."""

        momentum: float = option(config.DGS_MOMENTUM, ge=0, lt=1, shared="momentum", per_device=True)

    def compressor(self, selection: Any, workers: int) -> Any:
        """Make SAMomentum."""
        from ..exchange.codecs.sparse.compressors import SAMomentum

        return SAMomentum(selection, self.options.values)
