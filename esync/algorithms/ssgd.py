"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from ..exchange import Specification
from .base import CompressionOptions, Style
from .every_iteration import EveryIteration
from .registry import register


@register("sync", label="SSGD", summary="Sync", style=Style("#E69F00", "--", "s"))
class SSGD(EveryIteration):
    """One step of the optimizer with mean(g), once all workers' gradients are there.

    With SGD that is w ← w − η·mean(g). Batch-norm statistics are averaged, too.
    """

    class Options(CompressionOptions):
        """See `CompressionOptions`."""

    options: Options
    own_rates = False
    optimizer_chooses_rule = True
    elastic = True
    serverless = True

    def specification(self) -> Specification:
        """Ask for one step of the optimizer with the mean gradient of all workers."""
        return self._optimizer_specification(synchronous=True)
