"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from ..exchange import Specification
from .base import CompressionOptions, Style
from .every_iteration import EveryIteration
from .rate_scaling import RateScalingOptions
from .registry import register


@register("sync", label="SSGD", summary="Sync", style=Style("#E69F00", "--", "s"))
class SSGD(EveryIteration):
    """One step of the optimizer with mean(g), once all workers' gradients are there.

    With SGD that is w ← w − η·mean(g). Batch-norm statistics are averaged, too.
    """

    class Options(RateScalingOptions, CompressionOptions):
        """See `RateScalingOptions` and `CompressionOptions`."""

    options: Options
    own_rates = False
    optimizer_chooses_rule = True
    elastic = True
    serverless = True

    @property
    def effective_workers(self) -> float:
        """The number of workers of the run, whether they are there or not.

        All have to agree on the learning rate in every round.
        """
        return float(self.exchange.workers) if self.exchange is not None else 1.0

    def specification(self) -> Specification:
        """Ask for one step of the optimizer with the mean gradient of all workers."""
        return self._optimizer_specification(synchronous=True)
