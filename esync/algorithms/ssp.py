"""SSP, stale synchronous parallel (Ho et al., NeurIPS 2013): asynchronous SGD in which nobody gets too far ahead."""

from typing import ClassVar

from .. import config
from ..exchange import Specification
from .asgd import ASGD
from .base import Style
from .options import option
from .registry import register


@register("ssp", label="SSP", style=Style("#44AA99", (0, (1, 1)), "d"))
class SSP(ASGD):
    """ASGD, but a worker that is more than s iterations ahead of the slowest one waits for it.

    The waiting is the servers' affair: they use every gradient at once, and answer it when its
    worker may go on, with the weights as they are then. With s = 0 all iterations begin together;
    with a large s this is ASGD.
    """

    class Options(ASGD.Options):
        """The bound on staleness."""

        POSITIONAL: ClassVar[tuple[str, ...]] = ("staleness", "statistics")
        staleness: int = option(
            config.STALENESS, ge=0, agreed_as="staleness", help="iterations that a worker may be ahead of the slowest"
        )

    options: Options
    elastic = False

    def service(self) -> Specification:
        """Ask for one step of the optimizer with every gradient, answered when its worker may go on."""
        return self._optimizers_service(synchronous=False, staleness=self.options.staleness)
