"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from typing import Any

from ..compression import Compression
from ..exchange import Service
from .base import CompressionOptions
from .every_iteration import EveryIteration
from .registry import Style, register


@register("sync", label="SSGD", summary="Sync", style=Style("#E69F00", "--", "s"))
class SSGD(EveryIteration):
    """w ← w − η·mean(g), once all workers' gradients are there. Batch-norm statistics are averaged too."""

    class Options(CompressionOptions):
        """See `CompressionOptions`."""

    options: Options
    own_rates = False
    elastic = True
    serverless = True
    roundwise = frozenset[str]()

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self.compression = Compression.parse(self.options.compression)
        self.held_back = f"--compression {self.compression}" if self.compression else ""

    def service(self) -> Service:
        """Ask for one SGD step on the mean gradient of all workers."""
        return Service(rule="sgd", synchronous=True)
