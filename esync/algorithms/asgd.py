"""Asynchronous SGD: every gradient is applied as soon as it arrives."""

from ..exchange import Specification
from .every_iteration import EveryIteration
from .exchange_options import AsynchronousOptions
from .registry import register
from .styles import Style


@register("async", label="ASGD", summary="Async", style=Style("#009E73", "-.", "^"))
class ASGD(EveryIteration):
    """One step of the optimizer with every g at once; no worker waits.

    With SGD that is w ← w − η·g. Each worker keeps its own batch-norm statistics.
    """

    class Options(AsynchronousOptions):
        """See `AsynchronousOptions`."""

    optimizer_chooses_rule = True
    synchronous = False
    elastic = True

    def specification(self) -> Specification:
        """Ask for one step of the optimizer with every gradient."""
        return self._optimizer_specification(synchronous=False)
