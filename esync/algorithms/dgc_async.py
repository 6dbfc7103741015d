"""DGC-async: asynchronous SGD with deep gradient compression (Lin et al., ICLR 2018).

This is the variant to which the DGS paper compares DGS.
"""

from typing import Any

from .. import config
from .options import option
from .registry import register
from .sparse_async import SparseAsyncWithMomentum
from .styles import Style


@register("dgc-async", label="DGC-async", summary="DGC-Async", style=Style("#7A4B1E", (0, (2, 2)), "h"))
class DGCAsync(SparseAsyncWithMomentum):
    """Momentum correction and factor masking; optionally clipping and warm-up."""

    class Options(SparseAsyncWithMomentum.Options):
        """The options of clipping and warm-up."""

        momentum: float = option(config.DGC_MOMENTUM, ge=0, lt=1, shared="momentum", per_device=True)
        clip: float = option(
            config.DGC_CLIP,
            ge=0,
            flag="--dgc-clip",
            per_device=True,
            help="largest norm of a batch's mean gradient, divided by √workers; 0: no limit",
        )
        warm_up: int = option(
            config.DGC_WARM_UP,
            ge=0,
            flag="--dgc-warm-up",
            per_device=True,
            help="exchanges over which a worker's ratio falls to its final value",
        )

    options: Options

    def compressor(self, selection: Any, workers: int) -> Any:
        """Make DGC."""
        from ..exchange.codecs.sparse.compressors import DeepGradientCompression

        options = self.options
        return DeepGradientCompression(selection, options.values, options.clip, workers, options.warm_up)
