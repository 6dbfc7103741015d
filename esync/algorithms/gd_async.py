"""GD-async: asynchronous SGD with gradient dropping (Aji and Heafield, EMNLP 2017).

It is Algorithm 1 of the DGS paper.
"""

from typing import Any

from .registry import register
from .sparse_async import SparseAsync
from .styles import Style


@register("gd-async", label="GD-async", summary="GD-Async", style=Style("#B2A800", (0, (2, 1)), "X"))
class GDAsync(SparseAsync):
    """Gradient dropping: send the largest accumulated gradients, keep the rest; no momentum."""

    has_momentum = False

    def compressor(self, selection: Any, workers: int) -> Any:
        """Make gradient dropping."""
        from ..exchange.codecs.sparse.compressors import GradientDropping

        return GradientDropping(selection, self.options.values)
