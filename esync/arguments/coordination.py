"""Flags of the questions to the state server."""

import argparse
from collections.abc import Mapping

from .. import config
from .modes import UPDATES
from .values import count, epsilon, job, port

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "state_server_ip": ("esync", "sync-switch"),
    "state_server_port": ("esync", "sync-switch"),
    "local_iterations": UPDATES,
    "epsilon": ("esync",),
    "slowest_iterations": ("esync",),
    "query_mode": ("esync",),
}

#: Flags for the state server, which is not asked where the number of local iterations is fixed.
FOR_THE_STATE_SERVER = frozenset(MODES_OF) - {"local_iterations"}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    coordination = parser.add_argument_group("coordination (modes esync and sync-switch)")
    add = coordination.add_argument
    add("-ip", "--state-server-ip", default=config.STATE_SERVER_IP, help="address of the state server")
    add(
        "-port",
        "--state-server-port",
        type=port,
        default=int(config.STATE_SERVER_PORT),
        help="(default: %(default)s)",
    )
    add(
        "--job",
        type=job,
        default=config.JOB,
        help="name of this training on the state server; all modes report there where ESYNC_STATE_SERVER names it "
        "(default: %(default)s)",
    )
    add(
        "--query-mode",
        choices=config.QUERY_MODES,
        default=config.QUERY_MODE,
        help="wait for the state server's answers, or train on until READY arrives (default: %(default)s)",
    )
    add(
        "--epsilon",
        type=epsilon,
        default=config.EPSILON,
        help="seconds that guard READY, or auto: what iterations and questions fluctuate by (default: %(default)s)",
    )
    add(
        "--slowest-iterations",
        type=count,
        default=config.SLOWEST_ITERATIONS,
        help="local iterations of the slowest device per round (default: %(default)s)",
    )
    add(
        "--local-iterations",
        type=count,
        help="that many in every round, without a state server "
        f"(default of modes local-sgd and diloco: {config.LOCAL_ITERATIONS}; of mode dylu, whose fastest worker does "
        f"them: {config.DYLU_LOCAL_ITERATIONS})",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Who asks nobody needs no address."""
    if "local_iterations" in typed and typed & FOR_THE_STATE_SERVER:
        raise ValueError("--local-iterations fixes the number of local iterations; nobody asks a state server then")
