"""Asynchronous SGD: every gradient is used as soon as it arrives, however old the weights are that it belongs to."""

from ..exchange import Service
from .every_iteration import EveryIteration


class ASGD(EveryIteration):
    """w ← w − η·g at once; nobody waits. Each worker keeps its own batch-norm statistics.

    Args:
        statistics: which batch-norm statistics rank 0 evaluates and exports: "mean" of all workers' latest, or "rank0",
            its own, as published.
    """

    name = "async"
    synchronous = False
    own_statistics = True

    def service(self) -> Service:
        """One SGD step for every gradient."""
        return Service(rule="sgd", synchronous=self.synchronous)
