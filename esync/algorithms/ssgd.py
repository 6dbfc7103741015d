"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from .. import config
from ..compression import Compression
from ..exchange import Service
from .every_iteration import EveryIteration


class SSGD(EveryIteration):
    """w ← w − η·mean(g), once all workers' gradients are there. Batch-norm statistics are averaged too.

    Args:
        compression: of the exchanges: "none", "fp16", "2bit" or "topk:RATIO", see docs/compression.md.
    """

    name = "sync"
    own_rates = False

    def __init__(self, compression: str = config.COMPRESSION) -> None:
        super().__init__()
        self.compression = Compression.parse(compression)
        self.in_checkpoints = not self.compression

    def service(self) -> Service:
        """One SGD step on the mean gradient of all workers."""
        return Service(rule="sgd", synchronous=True)
