"""A worker's machine that loses its power: packets vanish, no connection ends. It is a network namespace."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from esync.rendezvous import messages
from esync.rendezvous.messages import SERVER, WORKER, Message

from .. import child
from .nodes import FakeNode

#: A worker, as far as a scheduler sees it: argv holds its address, the scheduler's, and the scheduler's port.
THERE = """
import sys, time, zmq
from esync.rendezvous import messages
from esync.rendezvous.messages import WORKER, Message, Node
there, here, port = sys.argv[1:]
context = zmq.Context()
inbox, outbox = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
node = Node(WORKER, there, inbox.bind_to_random_port(f"tcp://{there}"))
outbox.connect(f"tcp://{here}:{port}")
outbox.send(Message(messages.ADD_NODE, (node,)).encode(timestamp=1))
inbox.recv_multipart()
time.sleep(600)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def machine() -> Iterator[tuple[str, str, str, str]]:
    """A namespace with a cable to here: its name, that end of the cable, the addresses of this side and of that one."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root, and the program ip (package iproute2)")
    number = os.getpid() % 60_000
    name, outer, inner = f"esync-gone-{number}", f"eg{number}o", f"eg{number}i"
    here, there = (f"10.{100 + number // 256 % 128}.{number % 256}.{last}" for last in (5, 6))
    try:
        ip("netns", "add", name)
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        ip("addr", "add", f"{here}/30", "dev", outer)
        ip("link", "set", outer, "up")
        ip("-n", name, "addr", "add", f"{there}/30", "dev", inner)
        ip("-n", name, "link", "set", inner, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, inner, here, there
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode().strip()}")
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)  # takes the cable with it


def test_the_worker_of_a_machine_that_has_lost_its_power_is_replaced(machine: tuple[str, str, str, str]) -> None:
    """The kernel is to find out, after fifteen seconds (config.KEEP_ALIVE): nobody sends anything."""
    name, inner, here, there = machine
    port = 9091
    cluster = {"DMLC_PS_ROOT_URI": here, "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1"}
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            subprocess.Popen([sys.executable, "-m", "esync.scheduler"], env=child.environment(**cluster))
        )
        stack.callback(scheduler.kill)
        command = ["ip", "netns", "exec", name, sys.executable, "-c", THERE, there, here, str(port)]
        worker = stack.enter_context(subprocess.Popen(command))
        stack.callback(worker.kill)
        server = stack.enter_context(FakeNode(port, SERVER, here, here))
        told = server.received()
        assert told is not None
        (victim,) = (node for node in told.nodes if node.role == WORKER)
        assert victim.host == there
        server.send(Message(messages.BEGUN, (victim,)).encode(timestamp=2))
        ip("-n", name, "link", "set", inner, "down")
        newcomer = stack.enter_context(FakeNode(port, WORKER, here, here))
        admitted = newcomer.received()
        assert admitted is not None, "nobody has noticed"
        assert [node.port for node in admitted.nodes if node.role == WORKER] == [newcomer.port]
