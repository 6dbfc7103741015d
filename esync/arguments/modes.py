"""The names of algorithms and networks, and the seam between the command line and one group of its flags."""

import argparse
from collections.abc import Mapping
from typing import Protocol

#: Names in models.MODELS; kept here so that a server needs no model to read its command line.
NETWORKS = (
    "alexnet",
    "resnet18-v1",
    "resnet50-v1",
    "resnet50-v2",
    "mobilenet-v1",
    "mobilenet-v2",
    "inception-v3",
    "lenet",
    "mlp",
    "cifar-resnet20-v1",
    "cifar-resnet32-v1",
    "cifar-resnet56-v1",
    "cifar-resnet110-v1",
)
#: Asynchronous modes whose messages are sparse.
SPARSE = ("gd-async", "dgc-async", "dgs")
#: Modes with asynchronous exchanges, in which every worker keeps its own batch-norm statistics.
OWN_STATISTICS = ("async", "ssp", "dylu", "sync-switch", *SPARSE)
#: Modes whose workers exchange model updates, of which the mean is taken.
MEANS = ("esync", "local-sgd", "diloco")
#: Modes whose workers send model updates.
UPDATES = (*MEANS, "dylu")
MODES = (*UPDATES, "sync", "async", "ssp", "sync-switch", "local", *SPARSE)
DENSE = tuple(mode for mode in MODES if mode not in SPARSE)


class Group(Protocol):
    """One group of flags; a module of this package is one."""

    #: Flags (by the names of their values) that make sense in some modes only, and in which.
    MODES_OF: Mapping[str, tuple[str, ...]]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""

    def check(self, options: argparse.Namespace, typed: set[str]) -> None:
        """Check what no flag tells alone; `typed` names the values that were really given. Raises ValueError."""
