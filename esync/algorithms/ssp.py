"""SSP, stale synchronous parallel (Ho et al., NeurIPS 2013): asynchronous SGD, bounded staleness."""

from .. import config
from ..exchange import Specification
from .asgd import ASGD
from .options import option
from .registry import register
from .styles import Style


@register("ssp", label="SSP", style=Style("#44AA99", (0, (1, 1)), "d"))
class SSP(ASGD):
    """ASGD, but a worker that is more than s iterations ahead of the slowest one waits for it.

    The servers apply every gradient at once, and answer when its worker may continue, with the
    weights as they are then. With s = 0 all iterations begin together; with a large s this is ASGD.
    """

    class Options(ASGD.Options):
        """The options of ASGD, and the bound on staleness."""

        staleness: int = option(
            config.STALENESS, ge=0, agreed_as="staleness", help="iterations that a worker may be ahead of the slowest"
        )

    options: Options
    elastic = False

    def specification(self) -> Specification:
        """Ask for one step of the optimizer with every gradient, and for the bound on staleness.

        The server applies a gradient at once, but delays its acknowledgement to a worker that is too
        far ahead.
        """
        return self._optimizer_specification(synchronous=False, staleness=self.options.staleness)
