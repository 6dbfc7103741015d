"""Workers keep off ports to which servers of other jobs try to connect."""

from pathlib import Path

import pytest

from ..support import child
from ..support.ports import free_port
from .harness import SCRIPTS, Cluster

#: A server with this identity tries to reach the port of a worker that is dead; prints when somebody listens there.
SERVER = """
import sys, zmq
sender = zmq.Context().socket(zmq.DEALER)
sender.setsockopt(zmq.IDENTITY, b"ps8")
monitor = sender.get_monitor_socket(zmq.EVENT_CONNECTED)
sender.connect(f"tcp://127.0.0.1:{sys.argv[1]}")
print("ready", flush=True)
if monitor.poll(40_000):
    print("connected", flush=True)
    sys.stdin.read()
"""
#: Runs a program in which the first port that the system offers is that one.
WORKER = """
import runpy, socket, sys
create, offered = socket.create_server, iter([int(sys.argv[1])])
socket.create_server = lambda address, **options: create((address[0], next(offered, 0)), **options)
runpy.run_path(sys.argv[2], run_name="__main__")
"""


@pytest.mark.parametrize("slot", ["", "0"])
def test_worker_takes_a_port_that_no_other_server_tries_to_reach(slot: str, tmp_path: Path) -> None:
    port, program = free_port(), str(SCRIPTS / "ranked_worker.py")
    with child.started("-c", SERVER, str(port)) as server, Cluster(tmp_path, workers=2, seconds=60) as cluster:
        cluster.start("worker-0", ["-c", WORKER, str(port), program], interpreter=True, ESYNC_SLOT=slot)
        assert server.stdout is not None
        assert server.stdout.readline() == "connected\n"
        cluster.start("worker-1", [program])  # only now do the servers learn where the workers listen
        cluster.finish()
