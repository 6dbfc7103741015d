"""Flags of the cluster: how long to wait for whom, and what to do without those who are gone."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from .mode import Condition
from .values import not_negative, positive

CONDITIONS: Mapping[str, Condition] = {"elastic": lambda algorithm: algorithm.elastic}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    cluster = parser.add_argument_group("cluster", "Where the others are is said by the DMLC_* variables of MXNet.")
    add = cluster.add_argument
    add(
        "--start-timeout",
        type=positive,
        default=config.START_TIMEOUT,
        help="seconds to wait for the other processes to appear (default: %(default)s)",
    )
    add("--elastic", action="store_true", help="go on without workers that are gone; they may come back later")
    add(
        "--lease",
        type=positive,
        default=config.LEASE,
        help="with --elastic: seconds of silence after which a worker counts as gone; longer than an iteration of the "
        "slowest one (default: %(default)s)",
    )
    add(
        "--wait-for-replacement",
        type=not_negative,
        default=config.WAIT_FOR_REPLACEMENT,
        metavar="S",
        help="seconds that the others wait for another worker in the place of one that is gone, before the run ends; "
        "the launcher's workers are waited for as long as it replaces them (default: %(default)s)",
    )
    add("--redistribute", action="store_true", help="with --elastic: deal out the data of those who are gone")
    add(
        "--round-timeout",
        type=positive,
        default=config.ROUND_TIMEOUT,
        help="seconds to wait for the other workers' commits in one round (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse leases where the cluster is not elastic."""
    needless = typed & {"lease", "redistribute"}
    if needless and not options.elastic:
        raise ValueError(f"--{min(needless)} needs --elastic")
