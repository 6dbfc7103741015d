"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from ..exchange import Specification
from .base import CompressionOptions
from .every_iteration import EveryIteration
from .registry import register
from .style import Style


@register("sync", label="SSGD", summary="Sync", style=Style("#E69F00", "--", "s"))
class SSGD(EveryIteration):
    """w ← w − η·mean(g), once all workers' gradients are there. Batch-norm statistics are averaged too."""

    class Options(CompressionOptions):
        """See `CompressionOptions`."""

    options: Options
    own_rates = False
    elastic = True
    serverless = True

    def service(self) -> Specification:
        """Ask for one SGD step on the mean gradient of all workers."""
        return Specification(rule="sgd", synchronous=True)
