"""Flags of the servers' part: means, the outer optimizer's momentum, staleness, batch norm's statistics."""

import argparse
import math
from collections.abc import Mapping

from .. import config
from .modes import MEANS, MODES, OWN_STATISTICS, UPDATES
from .values import index, number

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "weighting": MEANS,
    "outer_momentum": UPDATES,
    "staleness": ("ssp",),
    "statistics": OWN_STATISTICS,
}

#: Modes in which at least one of these flags makes sense.
OF_THE_SERVERS = tuple(mode for mode in MODES if mode in {*UPDATES, "ssp", *OWN_STATISTICS})

#: Mode → flag → its default there, where it is another one than elsewhere.
DEFAULTS: Mapping[str, Mapping[str, float | int]] = {
    "local-sgd": {"local_iterations": config.LOCAL_ITERATIONS},
    "dylu": {
        "local_iterations": config.DYLU_LOCAL_ITERATIONS,
        "global_lr": config.DILOCO_GLOBAL_LR,
        "outer_momentum": config.DILOCO_OUTER_MOMENTUM,
    },
    "diloco": {
        "local_iterations": config.LOCAL_ITERATIONS,
        "global_lr": config.DILOCO_GLOBAL_LR,
        "outer_momentum": config.DILOCO_OUTER_MOMENTUM,
    },
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    means = parser.add_argument_group(f"what the servers do (modes {', '.join(OF_THE_SERVERS)})")
    add = means.add_argument
    add(
        "--weighting",
        choices=config.WEIGHTINGS,
        default=config.WEIGHTING,
        help="how much each worker counts: all the same, by its samples, or each update divided by what was computed "
        "for it (FedNova) (default: %(default)s)",
    )
    add(
        "--outer-momentum",
        type=number(float, 0, "a number of 0 or more, below 1", most=math.nextafter(1, 0)),
        default=config.OUTER_MOMENTUM,
        help=f"of Nesterov's momentum on the mean update (default: {config.OUTER_MOMENTUM}; modes diloco and dylu: "
        f"{config.DILOCO_OUTER_MOMENTUM})",
    )

    add(
        "--staleness",
        type=index,
        default=config.STALENESS,
        help="mode ssp: iterations that a worker may be ahead of the slowest (default: %(default)s)",
    )
    add(
        "--statistics",
        choices=config.STATISTICS_OF,
        default=config.STATISTICS,
        help="asynchronous modes: whose batch-norm statistics are evaluated and exported: the mean of all workers' "
        "latest, or rank 0's, as published (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Some modes have defaults of their own."""
    for name, value in DEFAULTS.get(options.mode, {}).items():
        if name not in typed:
            setattr(options, name, value)
