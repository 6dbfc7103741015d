"""FedProx and SCAFFOLD with as many local iterations on each worker as ESync's state server says.

Their own modes have one number for all devices of a simulation; the papers leave it to each device.
"""

from argparse import Namespace
from collections.abc import Set

from esync.algorithms import SCAFFOLD, ESync, FedProx
from esync.algorithms.automatic_interval import LocalIterations
from esync.algorithms.options import inherited


class ClockedFedProx(FedProx, ESync):
    """FedProx whose rounds end when the slowest device is about to be done."""

    class Options(FedProx.Options, ESync.Options):
        """The options of both, without a number of local iterations."""

        local_iterations: LocalIterations | None = inherited(ESync.Options, "local_iterations", None)  # type: ignore[assignment]

    options: Options


class ClockedSCAFFOLD(SCAFFOLD, ESync):
    """SCAFFOLD whose rounds end when the slowest device is about to be done."""

    class Options(SCAFFOLD.Options, ESync.Options):
        """The options of both, without a number of local iterations."""

        local_iterations: LocalIterations | None = inherited(ESync.Options, "local_iterations", None)  # type: ignore[assignment]

    options: Options

    @classmethod
    def check_flags(cls, options: Namespace, typed: Set[str]) -> None:
        """See `Algorithm.check_flags`. What `ESync` checks besides is --overlap, which there is not."""
        super(ESync, cls).check_flags(options, typed)
