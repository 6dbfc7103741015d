"""Run the scheduler, where workers and servers meet: `python -m esync.scheduler`.

It accepts the worker's flags.
"""

import argparse
import logging
import os

from . import config
from .arguments import read
from .membership.connections import raise_file_limit
from .membership.monitor import Arrival, monitor_cluster
from .membership.rendezvous.attendance import Places
from .membership.rendezvous.node_registry import NodeRegistry, scheduler_node
from .membership.rendezvous.zmq_transport import ZMQTransport
from .runtime import output, program
from .runtime.environment import Cluster, take_role
from .runtime.watchdog import Watchdog, WatchedWait

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run until all processes have left; return the exit code."""
    options = read(
        program.name("python -m esync.scheduler"), "The scheduler of a cluster.", arguments, environment=os.environ
    )
    return program.run("scheduler", lambda watchdog: _schedule(options, watchdog))


def _schedule(options: argparse.Namespace, watchdog: Watchdog) -> int:
    take_role("scheduler")
    raise_file_limit()  # unknown connections also use descriptors
    cluster = Cluster.from_environment()

    def alone() -> None:
        log.info("everyone has left%s", "" if registry.complete else " before the run had begun")
        program.exit_now(1 if registry.failure or not registry.complete else 0)

    me, places = scheduler_node(cluster.address, cluster.port), Places.read(os.environ)
    registry = NodeRegistry(me, cluster.servers, cluster.workers, log.info, places)
    patience = max(config.PEER_TIMEOUT, options.wait_for_replacement)
    transport = ZMQTransport(registry, cluster.address, cluster.port, patience)
    wait = WatchedWait(lambda: transport.attendance.missing, options.start_timeout, lambda: transport.attendance.advice)
    arrival = Arrival(lambda connected: registry.complete, watchdog, wait)
    monitor_cluster(lambda: transport.present, 0, config.NO_PEERS_TIMEOUT, alone, arrival).start()
    transport.run()
    return 1


if __name__ == "__main__":
    output.install()
    program.exit_now(main())
