import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from esync.membership.connections import TrafficMeter, connections, keep_alive, listening, outgoing

from ..support import child

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="Linux only")

#: The other side, in another process: takes commands on its standard input.
PEER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print("ready")
print(server.getsockname()[1], flush=True)
peers = []
for line in sys.stdin:
    command, *numbers = line.split()
    if command == "accept":
        peers.append(server.accept()[0])
    elif command == "read":
        left = int(numbers[0])
        while left:
            left -= len(peers[-1].recv(min(left, 65536)))
    elif command == "write":
        peers[-1].sendall(b"x" * int(numbers[0]))
    elif command == "close":
        peers.pop().close()
    print("done", flush=True)
"""


class Peer:
    """Does what it is told on the other side of the connections."""

    def __init__(self, process) -> None:
        self._process = process
        self.address = ("127.0.0.1", int(process.stdout.readline()))

    def __call__(self, *command: object) -> None:
        self._process.stdin.write(" ".join(map(str, command)) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self.address)
        self("accept")
        return sock


@pytest.fixture
def peer():
    with child.started("-c", PEER) as process:
        yield Peer(process)


def mine(sock: socket.socket) -> list:
    return [connection for connection in connections() if connection.local == sock.getsockname()]


def soon(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true; acknowledgements take their time."""
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_connections_list_both_ends(peer):
    with peer.connect() as sock:
        (entry,) = mine(sock)
        assert (entry.local, entry.remote, entry.established) == (sock.getsockname(), peer.address, True)
    assert entry.inode not in {connection.inode for connection in connections()}


def test_connections_count_bytes_exactly(peer):
    with peer.connect() as sock:
        (before,) = mine(sock)
        peer("write", 12_345)
        remaining = 12_345
        while remaining:
            remaining -= len(sock.recv(remaining))
        sock.sendall(b"y" * 100_001)
        peer("read", 100_001)
        assert soon(lambda: mine(sock)[0].sent - before.sent == 100_001)
        assert mine(sock)[0].received - before.received == 12_345


def test_connection_closed_by_the_peer_is_not_established(peer):
    with peer.connect() as sock:
        peer("close")
        assert soon(lambda: not mine(sock)[0].established)


def test_connections_omit_those_of_a_process_to_itself():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            ends = {client.getsockname(), accepted.getsockname()}
            assert not [connection for connection in connections() if connection.local in ends]


def test_connections_omit_other_sockets():
    before = {connection.inode for connection in connections()}
    with (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket() as unconnected,
    ):
        datagrams.connect(("127.0.0.1", 9))
        assert unconnected.fileno() >= 0
        pair = socket.socketpair()
        assert {connection.inode for connection in connections()} == before
        for sock in pair:
            sock.close()


def test_connections_leave_the_default_timeout_alone(peer):
    """socket.setdefaulttimeout makes every new Python socket and its duplicates non-blocking.

    Whoever uses the socket notices nothing.
    """
    with peer.connect() as sock:
        socket.setdefaulttimeout(5.0)
        try:
            connections()
            listening()
            keep_alive(5, 2, 5, among={peer.address})
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(sock.fileno())
        peer("write", 3)
        assert sock.recv(3) == b"xxx"


def test_connections_are_listed_without_free_file_descriptors(peer):
    """Strangers who connect again and again can exhaust them."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with peer.connect() as sock, ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, sock.fileno() + 8), limits[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with suppress(OSError):
            while True:
                stack.enter_context(open(os.devnull))
        with pytest.raises(OSError, match="Too many open files"):
            os.listdir("/proc/self/fd")
        assert len(mine(sock)) == 1
        assert mine(sock)[0] in outgoing()


def test_outgoing_omits_accepted_connections(peer):
    with peer.connect() as sock, socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket; s = socket.create_connection(('127.0.0.1', {server.getsockname()[1]})); input()"
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as other, server.accept()[0]:
            assert server.getsockname() in [connection.local for connection in connections()]
            assert server.getsockname() not in [connection.local for connection in outgoing()]
            assert sock.getsockname() in [connection.local for connection in outgoing()]
            other.kill()


def test_traffic_meter_counts_from_its_creation(peer):
    with peer.connect() as sock:
        sock.sendall(b"y" * 5000)
        peer("read", 5000)
        assert soon(lambda: mine(sock)[0].sent >= 5000)
        meter = TrafficMeter()
        assert meter.read_delta() == (0, 0)
        sock.sendall(b"y" * 70_000)
        peer("read", 70_000)
        peer("write", 7)
        assert sock.recv(7) == b"x" * 7
        sent = received = 0

        def arrived() -> bool:
            nonlocal sent, received
            delta = meter.read_delta()
            sent, received = sent + delta[0], received + delta[1]
            return (sent, received) == (70_000, 7)

        assert soon(arrived)
        assert meter.read_delta() == (0, 0)


def test_traffic_meter_keeps_bytes_of_closed_connections(peer):
    meter = TrafficMeter()
    with peer.connect() as first:
        first.sendall(b"y" * 1000)
        peer("read", 1000)
        assert soon(lambda: mine(first)[0].sent >= 1000)
        sent, _ = meter.read_delta()
        assert 1000 <= sent <= 1001  # the kernel counts the beginning of a connection as a byte
    peer("close")
    assert meter.read_delta() == (0, 0)
    with peer.connect() as second:
        second.sendall(b"y" * 300)
        peer("read", 300)
        assert soon(lambda: mine(second)[0].sent >= 300)
        assert 300 <= meter.read_delta()[0] <= 301
