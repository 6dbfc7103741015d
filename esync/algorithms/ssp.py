"""Stale synchronous parallel (Ho et al., NeurIPS 2013): asynchronous SGD in which nobody gets too far ahead."""

from .. import config
from ..exchange import Service
from .asgd import ASGD


class SSP(ASGD):
    """ASGD, but a worker that is more than s iterations ahead of the slowest one waits for it.

    The waiting is the servers' affair: they use every gradient at once, and answer it when its worker may go on, with
    the weights as they are then. With s = 0 all iterations begin together; with a large s this is ASGD.

    Args:
        staleness: s, in iterations.
        statistics: as in `ASGD`.
    """

    name = "ssp"

    def __init__(self, staleness: int = config.STALENESS, statistics: str = config.STATISTICS) -> None:
        super().__init__(statistics)
        if staleness < 0:
            raise ValueError(f"staleness is {staleness}, but should be 0 or more")
        self._staleness = staleness

    def service(self) -> Service:
        """One SGD step for every gradient, answered when its worker may go on."""
        return Service(rule="sgd", synchronous=False, staleness=self._staleness)
