"""Flags of the state server: where it is, and what this training is called there."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..algorithms import Algorithm
from ..algorithms.registry import names, options_of
from .mode import Condition
from .values import job, port


def _may_ask(algorithm: type[Algorithm]) -> bool:
    """Whether the algorithm itself asks a state server, at least with some options."""
    return any(each.shared == "state_server" for each in options_of(algorithm))


CONDITIONS: Mapping[str, Condition] = {"state_server_ip": _may_ask, "state_server_port": _may_ask}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    coordination = parser.add_argument_group(f"state server (modes {', '.join(names(_may_ask))})")
    add = coordination.add_argument
    add("-ip", "--state-server-ip", default=config.STATE_SERVER_IP, help="address of the state server")
    add(
        "-port",
        "--state-server-port",
        type=port,
        default=int(config.STATE_SERVER_PORT),
        help="its port (default: %(default)s)",
    )
    add(
        "--job",
        type=job,
        default=config.JOB,
        help="name of this training on the state server; all modes report there where ESYNC_STATE_SERVER names it "
        "(default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Do nothing: no flag here depends on another one."""
