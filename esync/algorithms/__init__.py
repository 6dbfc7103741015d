"""The algorithms, one file each.

What is true of an algorithm stands in its class; every other part of the package asks the class,
not its name:

    registry       `@register` enters a class into ALGORITHMS under its mode's name; `loading` finds
                   those from outside.
    arguments      Works in two stages: `--mode` finds the class, whose `Options` then define flags,
                   defaults and checks. `choose_algorithm` makes the object that the flags describe.
    worker_setup   Gives that object to an `esync.Trainer`, and writes into run.json what it is and
                   how it is set.
    trainer        Hands it replica and world when it starts (`AlgorithmContext`), and calls its
                   `step` for every batch. The workers compare its `terms` then, checkpoints the
                   `fixed` ones of its options.
    launch         Check the same flags for all processes (`launch.flags`), and ask the class what
    simulate       it needs: servers, a state server, gradients. The simulator runs the same object
                   in a world of its own.
    reports        Read name, label, style and summary from run.json; only older logs need the
                   registry.

docs/generate.py writes the tables of modes, options and flags from the classes;
docs/how-to/adding_an_algorithm.md is for authors of a class. May import `config`, `coordination`,
`exchange`, `rules` and `runtime`.
"""

# The order of tables and figures is the order in which the classes are registered.
# isort: off
from .esync import ESync
from .tiered_esync import TieredESync
from .local_sgd import LocalSGD
from .fedprox import FedProx
from .scaffold import SCAFFOLD
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
from .base import Algorithm
from .context import AlgorithmContext, CheckpointHooks, Hyper, World
from .loading import find
from .model_view import ModelView
from .options import option
from .registry import ALGORITHMS, register
from .styles import Style

__all__ = [
    "ALGORITHMS",
    "ASGD",
    "DCASGD",
    "DGS",
    "SCAFFOLD",
    "SSGD",
    "SSP",
    "Algorithm",
    "AlgorithmContext",
    "CheckpointHooks",
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
    "Style",
    "SyncSwitch",
    "TieredESync",
    "World",
    "find",
    "make",
    "option",
    "register",
]


def make(algorithm: "str | Algorithm") -> Algorithm:
    """Return the algorithm of a text that `find` understands, with its default options.

    An algorithm is returned as it is.

    Raises:
        ValueError: there is no such algorithm.
        TypeError: it is neither a text nor an algorithm.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str):
        example = f"{algorithm.__name__}()" if isinstance(algorithm, type) else "SSP(staleness=2)"
        raise TypeError(f"algorithm is {algorithm!r}, but should be a name or an object, such as {example}")
    return find(algorithm)()
