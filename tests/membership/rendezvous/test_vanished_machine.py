"""A worker's machine that loses power, in a network namespace.

Packets vanish, and no connection ends.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from esync.membership.rendezvous import messages
from esync.membership.rendezvous.messages import SERVER, WORKER, Message

from ...support import child
from ...support.network_namespaces import Neighbour, inside, missing, neighbour
from .nodes import FakeNode

#: A worker, as far as a scheduler sees it: argv holds its address, the scheduler's, and the
#: scheduler's port.
THERE = """
import sys, time, zmq
from esync.membership.rendezvous import messages
from esync.membership.rendezvous.messages import WORKER, Message, Node
there, here, port = sys.argv[1:]
context = zmq.Context()
inbox, outbox = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
node = Node(WORKER, there, inbox.bind_to_random_port(f"tcp://{there}"))
outbox.connect(f"tcp://{here}:{port}")
outbox.send(Message(messages.ADD_NODE, (node,)).encode(timestamp=1))
inbox.recv_multipart()
time.sleep(600)
"""


@pytest.fixture
def machine() -> Iterator[Neighbour]:
    if why := missing():
        pytest.skip(why)
    with neighbour() as far:
        yield far


def test_worker_of_a_machine_without_power_is_replaced(machine: Neighbour) -> None:
    """Nobody sends anything, so keep-alive has to notice it after config.KEEP_ALIVE seconds."""
    host, remote, port = machine.here, machine.there, 9091
    cluster = {"DMLC_PS_ROOT_URI": host, "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1"}
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            subprocess.Popen([sys.executable, "-m", "esync.scheduler"], env=child.environment(**cluster))
        )
        stack.callback(scheduler.kill)
        command = [sys.executable, "-c", THERE, remote, host, str(port)]
        worker = stack.enter_context(subprocess.Popen([*inside(machine.name), *command]))
        stack.callback(worker.kill)
        server = stack.enter_context(FakeNode(port, SERVER, host))
        message = server.received()
        assert message is not None
        (victim,) = (node for node in message.nodes if node.role == WORKER)
        assert victim.host == remote
        server.send(Message(messages.BEGUN, (victim,)).encode(timestamp=2))
        machine.unplug()
        replacement = stack.enter_context(FakeNode(port, WORKER, host))
        admitted = replacement.received()
        assert admitted is not None, "nobody has noticed"
        assert [node.port for node in admitted.nodes if node.role == WORKER] == [replacement.port]
