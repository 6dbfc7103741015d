"""One file per algorithm; `make` finds them by the names of the command line."""

# The order of tables and figures is the order in which the classes are registered.
# isort: off
from .esync import ESync
from .local_sgd import LocalSGD
from .fedprox import FedProx
from .diloco import DiLoCo
from .dylu import DyLU
from .ssgd import SSGD
from .asgd import ASGD
from .ssp import SSP
from .dcasgd import DCASGD
from .sync_switch import SyncSwitch
from .gd_async import GDAsync
from .dgc_async import DGCAsync
from .dgs import DGS
from .local import Local

# isort: on
from ..modelview import ModelView
from .base import Algorithm, Hyper, NoPast, Surroundings, World
from .loading import find
from .options import option
from .registry import REGISTRY, Style, register
from .switch_schedule import Schedule

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
    "FedProx",
    "GDAsync",
    "Hyper",
    "Local",
    "LocalSGD",
    "ModelView",
    "NoPast",
    "Schedule",
    "Style",
    "Surroundings",
    "SyncSwitch",
    "World",
    "find",
    "make",
    "option",
    "register",
]

#: Name → class.
ALGORITHMS = REGISTRY


def make(algorithm: "str | Algorithm") -> Algorithm:
    """Return the algorithm of that name with default options; an algorithm as it is.

    Raises:
        ValueError: there is no such algorithm.
        TypeError: it is neither a name nor an algorithm.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str):
        example = f"{algorithm.__name__}()" if isinstance(algorithm, type) else "SSP(staleness=2)"
        raise TypeError(f"algorithm is {algorithm!r}, but should be a name or an object, such as {example}")
    return find(algorithm)()
