"""Flags of the cluster: the state server, collectives, and how long to wait for others."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..algorithms import Algorithm
from ..algorithms.registry import names, options_of
from ..exchange.codecs.quantization import NONE
from ..exchange.collectives import COLLECTIVES
from .flag_types import Condition, FlagGroup, job, not_negative, port, positive
from .mode import choose_algorithm


def _may_ask(algorithm: type[Algorithm]) -> bool:
    """Return whether the algorithm itself asks a state server, at least with some options."""
    return any(option.shared == "state_server" for option in options_of(algorithm))


_STATE_SERVER_CONDITIONS: Mapping[str, Condition] = {"state_server_ip": _may_ask, "state_server_port": _may_ask}


def _add_state_server(parser: argparse.ArgumentParser) -> None:
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
        help="name of this training on the state server; with ESYNC_STATE_SERVER all modes report there "
        "(default: %(default)s)",
    )


STATE_SERVER = FlagGroup(_add_state_server, conditions=_STATE_SERVER_CONDITIONS)


def _serverless() -> str:
    """Name the modes in which all workers exchange together, so that no server is needed."""
    return ", ".join(names(lambda algorithm: algorithm.serverless))


def _add_collectives(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(f"collectives (modes {_serverless()})")
    group.add_argument(
        "--collective",
        choices=COLLECTIVES,
        default=config.COLLECTIVE,
        help="sum over the workers by parameter servers (ps), or without servers over MPI (default: %(default)s)",
    )


def _check_collectives(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse flags that need a server if there is none."""
    if options.collective not in COLLECTIVES:  # a default is not checked by the parser
        raise ValueError(f"ESYNC_COLLECTIVE is {options.collective!r}, but should be one of {', '.join(COLLECTIVES)}")
    if options.collective == "ps":
        return
    if not options.algorithm.serverless:
        raise ValueError(
            f"--collective {options.collective} has no server, which --mode {options.mode} needs; it is for "
            f"{_serverless()}"
        )
    if choose_algorithm(options).weight_compression != NONE:
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


COLLECTIVE = FlagGroup(_add_collectives, _check_collectives)


_CLUSTER_CONDITIONS: Mapping[str, Condition] = {"elastic": lambda algorithm: algorithm.elastic}


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster", "MXNet's DMLC_* variables say where the other processes are.")
    add = cluster.add_argument
    add(
        "--start-timeout",
        type=positive,
        default=config.START_TIMEOUT,
        help="seconds to wait for the other processes at the start (default: %(default)s)",
    )
    add("--elastic", action="store_true", help="continue without dead workers; they may rejoin later")
    add(
        "--lease",
        type=positive,
        default=config.LEASE,
        help="with --elastic: seconds without a heartbeat after which a worker counts as dead; heartbeats stop after "
        "half of --round-timeout without a step (default: %(default)s)",
    )
    add(
        "--wait-for-replacement",
        type=not_negative,
        default=config.WAIT_FOR_REPLACEMENT,
        metavar="S",
        help="seconds to wait for a replacement of a dead worker before the run ends; the launcher's workers are "
        "waited for as long as it replaces them (default: %(default)s)",
    )
    add(
        "--redistribute",
        action="store_true",
        help="with --elastic: divide a dead worker's data among the others",
    )
    add(
        "--round-timeout",
        type=positive,
        default=config.ROUND_TIMEOUT,
        help="seconds to wait for the other workers' commits in one round (default: %(default)s)",
    )


def _check_cluster(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse --lease and --redistribute without --elastic."""
    needless = typed & {"lease", "redistribute"}
    if needless and not options.elastic:
        raise ValueError(f"--{min(needless)} needs --elastic")


CLUSTER = FlagGroup(_add_cluster, _check_cluster, _CLUSTER_CONDITIONS)
