"""Run a parameter server: `python -m esync.server`.

It accepts the worker's flags. With -g N it sums payloads on that GPU, otherwise on the CPU.
"""

import argparse
import os
from typing import Any

from . import config
from .arguments import read
from .membership.connections import raise_file_limit
from .membership.monitor import Arrival, monitor_cluster
from .membership.peers import OutgoingConnections
from .runtime import output, program
from .runtime.environment import Cluster, take_role
from .runtime.watchdog import Watchdog, WatchedWait


def main(arguments: list[str] | None = None) -> int:
    """Serve until all workers have left; return the exit code."""
    options = read(program.name("python -m esync.server"), "A parameter server.", arguments, environment=os.environ)
    return program.run("server", lambda watchdog: _serve(options, watchdog), grace=0)


def _memory(options: argparse.Namespace) -> Any:
    """Return the memory in which payloads are summed."""
    if options.gpu is None:
        from .exchange.protocol.payload_staging import HostMemory

        return HostMemory()
    from .exchange.keystores.mxnet_server import DeviceMemory
    from .training.worker_setup import choose_device

    return DeviceMemory(choose_device(options)[0])


def _serve(options: argparse.Namespace, watchdog: Watchdog) -> int:
    take_role("server")
    raise_file_limit()  # unknown connections also use descriptors
    cluster = Cluster.from_environment()
    memory = _memory(options)
    from .exchange.keystores.mxnet_server import KVStoreServer
    from .exchange.keystores.sender_check import SenderCheck
    from .runtime.mxnet_import import mx

    outgoing = OutgoingConnections()
    server = KVStoreServer(mx.kv.create("dist_async"), memory, outgoing, cluster, options.round_timeout)
    start = server.start_monitor
    wait = WatchedWait(start.awaited, options.start_timeout, start.advice)
    arrival = Arrival(lambda connected: connected > cluster.workers, watchdog, wait)
    monitor_cluster(outgoing.connected, 1, config.CONNECTION_TIMEOUT, server.alone, arrival, server.patience).start()
    SenderCheck().start()
    server.run()
    return 0


if __name__ == "__main__":
    output.install()
    program.exit_now(main())
