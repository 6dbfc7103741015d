"""Asynchronous SGD: every gradient is used as soon as it arrives, however old the weights are that it belongs to."""

from ..exchange import Specification
from .base import OwnStatisticsOptions
from .every_iteration import EveryIteration
from .registry import register
from .style import Style


@register("async", label="ASGD", summary="Async", style=Style("#009E73", "-.", "^"))
class ASGD(EveryIteration):
    """w ← w − η·g at once; nobody waits. Each worker keeps its own batch-norm statistics."""

    class Options(OwnStatisticsOptions):
        """See `OwnStatisticsOptions`."""

    synchronous = False
    elastic = True

    def service(self) -> Specification:
        """Ask for one SGD step for every gradient."""
        return Specification(rule="sgd", synchronous=self.synchronous)
