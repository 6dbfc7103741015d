"""GD-async: asynchronous SGD with gradient dropping (Aji and Heafield, EMNLP 2017; DGS paper, Algorithm 1)."""

from typing import Any

from .sparse_async import SparseAsync


class GDAsync(SparseAsync):
    """The largest accumulated gradients are sent, the rest is kept; no momentum."""

    name = "gd-async"
    has_momentum = False

    def compressor(self, selection: Any, workers: int) -> Any:
        """Gradient dropping."""
        from ..sparse.compressors import GradientDropping

        return GradientDropping(selection, self._values)
