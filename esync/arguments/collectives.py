"""Flags of the exchange without a server."""

import argparse
from collections.abc import Mapping

from .. import config
from ..collectives import COLLECTIVES
from .modes import MEANS

MODES_OF: Mapping[str, tuple[str, ...]] = {}

#: Modes in which all workers exchange together, so that no server is needed.
SERVERLESS = (*MEANS, "sync")


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("collectives (modes " + ", ".join(SERVERLESS) + ")")
    group.add_argument(
        "--collective",
        choices=COLLECTIVES,
        default=config.COLLECTIVE,
        help="how updates are summed over the workers: ps, by parameter servers; ring, butterfly, binary-blocks or "
        "mpi, without any server, over MPI (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """What needs a server is refused."""
    if options.collective == "ps":
        return
    if options.mode not in SERVERLESS:
        raise ValueError(
            f"--collective {options.collective} has no server, which --mode {options.mode} needs; it is for "
            f"{', '.join(SERVERLESS)}"
        )
    if options.compression != config.COMPRESSION:
        raise ValueError(f"--collective {options.collective} has no server, which --compression needs")
    if options.elastic:
        raise ValueError(
            f"--collective {options.collective} has no server, which --elastic needs: every worker takes part in every "
            "exchange"
        )
