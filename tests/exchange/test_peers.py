"""A worker whose scheduler and servers are real sockets that end."""

import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack

import pytest

from esync.exchange.keystores.peers import Peers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")

#: A program that listens, says where, and holds whatever connects until it is ended.
LISTENER = textwrap.dedent("""
    import socket
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    held = []
    while True:
        held.append(server.accept())
""")


class Listener:
    """A process that can be killed."""

    def __init__(self, stack: ExitStack) -> None:
        self.process = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self.process.kill)
        assert self.process.stdout is not None
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))
        self.connection = stack.enter_context(socket.create_connection(self.address))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("which", ["scheduler", "server"])
def test_who_is_gone_is_named(which):
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        gone: list[str] = []
        peers = Peers(scheduler.address, [server.address], lost=gone.append, patience=5.0)
        assert peers.look(now=100.0) == ""
        victim = {"scheduler": scheduler, "server": server}[which]
        victim.kill()
        assert peers.look(now=104.0) == ""  # it may connect again
        name = "the scheduler" if which == "scheduler" else "the parameter server"
        assert peers.look(now=106.0) == f"{name} at 127.0.0.1:{victim.address[1]}"


def test_connections_of_other_kinds_do_not_count():
    with ExitStack() as stack:
        tracker = Listener(stack)  # before anything of the cluster is there
        scheduler, server = Listener(stack), Listener(stack)
        peers = Peers(scheduler.address, [server.address], patience=5.0)
        assert peers.look(now=100.0) == ""
        store = Listener(stack)
        assert peers.look(now=101.0) == ""
        tracker.kill()
        store.kill()
        assert peers.look(now=107.0) == ""
        assert peers.look(now=113.0) == ""
        server.kill()
        assert "parameter server" in peers.look(now=200.0)


def test_only_connections_of_the_cluster_are_kept_alive():
    with ExitStack() as stack:
        tracker, scheduler, server = Listener(stack), Listener(stack), Listener(stack)
        Peers(scheduler.address, [server.address]).look(now=100.0)
        keeps = [
            each.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in (tracker, scheduler, server)
        ]
        assert keeps == [0, 1, 1]


def test_a_name_is_watched_once_it_can_be_resolved(monkeypatch):
    known: dict[str, set[str]] = {}
    monkeypatch.setattr("esync.exchange.keystores.peers.numbers", lambda host: known.get(host, set()))
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        known["127.0.0.1"] = {"127.0.0.1"}
        peers = Peers(scheduler.address, [("cloud2", server.address[1])], patience=5.0)
        assert peers.look(now=100.0) == ""
        assert peers.look(now=107.0) == ""
        known["cloud2"] = {"127.0.0.1"}
        assert peers.look(now=108.0) == ""
        server.kill()
        assert peers.look(now=115.0) == f"the parameter server at cloud2:{server.address[1]}"


def test_a_connection_that_comes_back_is_forgiven():
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        peers = Peers(scheduler.address, [server.address], patience=5.0)
        peers.look(now=100.0)
        server.connection.close()
        assert peers.look(now=104.0) == ""
        stack.enter_context(socket.create_connection(server.address))
        assert peers.look(now=104.5) == ""
        assert peers.look(now=109.0) == ""


def test_the_end_of_the_watch():
    peers = Peers(("127.0.0.1", 1), [("127.0.0.1", 2)])
    peers.start()
    peers.over()
    peers.join(5)
    assert not peers.is_alive()
