"""Flags of the exchange without a server."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..algorithms.registry import names
from ..exchange.collectives import COLLECTIVES
from .mode import Condition, choose_algorithm

CONDITIONS: Mapping[str, Condition] = {}


def _serverless() -> str:
    """Name the modes in which all workers exchange together, so that no server is needed."""
    return ", ".join(names(lambda algorithm: algorithm.serverless))


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group(f"collectives (modes {_serverless()})")
    group.add_argument(
        "--collective",
        choices=COLLECTIVES,
        default=config.COLLECTIVE,
        help="how updates are summed over the workers: ps, by parameter servers; ring, butterfly, binary-blocks or "
        "mpi, without any server, over MPI (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse what needs a server where there is none."""
    if options.collective == "ps":
        return
    if not options.algorithm.serverless:
        raise ValueError(
            f"--collective {options.collective} has no server, which --mode {options.mode} needs; it is for "
            f"{_serverless()}"
        )
    if choose_algorithm(options).compression:
        raise ValueError(f"--collective {options.collective} has no server, which --compression needs")
    if options.elastic:
        raise ValueError(
            f"--collective {options.collective} has no server, which --elastic needs: every worker takes part in every "
            "exchange"
        )
    if "wait_for_replacement" in typed:
        raise ValueError(
            f"--collective {options.collective} has no server, which --wait-for-replacement needs: nobody can take a "
            "rank's place"
        )
