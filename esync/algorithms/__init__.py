"""One file per algorithm; `make` finds them by the names of the command line."""

from collections.abc import Callable

from .asgd import ASGD
from .base import Algorithm, Hyper, NoPast, Surroundings, World
from .dcasgd import DCASGD
from .dgc_async import DGCAsync
from .dgs import DGS
from .diloco import DiLoCo
from .dylu import DyLU
from .esync import ESync
from .gd_async import GDAsync
from .local import Local
from .local_sgd import LocalSGD
from .ssgd import SSGD
from .ssp import SSP
from .switch_schedule import Schedule
from .sync_switch import SyncSwitch

__all__ = [
    "ALGORITHMS",
    "ASGD",
    "DCASGD",
    "DGS",
    "SSGD",
    "SSP",
    "Algorithm",
    "DGCAsync",
    "DiLoCo",
    "DyLU",
    "ESync",
    "GDAsync",
    "Hyper",
    "Local",
    "LocalSGD",
    "NoPast",
    "Schedule",
    "Surroundings",
    "SyncSwitch",
    "World",
    "make",
]

#: Name → makes the algorithm with its default options.
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    each.name: each
    for each in (ESync, LocalSGD, DiLoCo, DyLU, SSGD, ASGD, SSP, DCASGD, SyncSwitch, GDAsync, DGCAsync, DGS, Local)
}


def make(algorithm: "str | Algorithm") -> Algorithm:
    """The algorithm of that name with default options; an algorithm as it is."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; known: {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[algorithm]()
