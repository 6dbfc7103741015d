"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from ..exchange import Service
from .every_iteration import EveryIteration


class SSGD(EveryIteration):
    """w ← w − η·mean(g), once all workers' gradients are there. Batch-norm statistics are averaged too."""

    name = "sync"

    def service(self) -> Service:
        """One SGD step on the mean gradient of all workers."""
        return Service(rule="sgd", synchronous=True)
