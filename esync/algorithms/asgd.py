"""Asynchronous SGD: every gradient is used as soon as it arrives, however old the weights are that it belongs to."""

from ..exchange import Specification
from .base import OwnStatisticsOptions, Style
from .every_iteration import EveryIteration
from .registry import register


@register("async", label="ASGD", summary="Async", style=Style("#009E73", "-.", "^"))
class ASGD(EveryIteration):
    """One step of the optimizer with every g at once; nobody waits.

    With SGD that is w ← w − η·g. Each worker keeps its own batch-norm statistics.
    """

    class Options(OwnStatisticsOptions):
        """See `OwnStatisticsOptions`."""

    optimizer_chooses_rule = True
    synchronous = False
    elastic = True

    def service(self) -> Specification:
        """Ask for one step of the optimizer with every gradient."""
        return self._optimizers_service(synchronous=False)
