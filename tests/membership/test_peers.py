"""A worker's monitor of scheduler and servers, with real sockets."""

import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack

import pytest

from esync import config
from esync.membership import names
from esync.membership.monitor import monitor_servers
from esync.membership.peers import OutgoingConnections, Peers

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
def test_server_monitor_names_the_peer_that_is_gone(which):
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        monitor = monitor_servers(scheduler.address, [server.address], print, grace=5.0)
        assert monitor.look(now=100.0) == []
        victim = {"scheduler": scheduler, "server": server}[which]
        victim.kill()
        assert monitor.look(now=101.0) == []
        assert monitor.look(now=105.5) == []  # it may connect again
        name = "the scheduler" if which == "scheduler" else "the parameter server"
        assert monitor.look(now=106.5) == [f"{name} at 127.0.0.1:{victim.address[1]}"]


@pytest.mark.parametrize("order", [("server", "scheduler"), ("scheduler", "server")])
def test_server_monitor_reports_each_lost_peer_once(order):
    """A worker that has lost the scheduler at the end of a run may still need the servers."""
    with ExitStack() as stack:
        listeners = {"scheduler": Listener(stack), "server": Listener(stack)}
        addresses = {name: listener.address for name, listener in listeners.items()}
        reports: list[str] = []
        told = threading.Event()

        def lost(who: str) -> None:
            reports.append(who)
            told.set()

        monitor = monitor_servers(addresses["scheduler"], [addresses["server"]], lost, grace=0.1)
        assert monitor.look(now=time.monotonic()) == []
        monitor.start()
        stack.callback(monitor.close)
        for name in order:
            told.clear()
            listeners[name].kill()
            assert told.wait(60)
        names = {"scheduler": "the scheduler", "server": "the parameter server"}
        assert reports == [f"{names[name]} at 127.0.0.1:{addresses[name][1]}" for name in order]


def test_server_monitor_ignores_other_connections():
    with ExitStack() as stack:
        tracker = Listener(stack)  # before anything of the cluster is there
        scheduler, server = Listener(stack), Listener(stack)
        monitor = monitor_servers(scheduler.address, [server.address], print, grace=5.0)
        assert monitor.look(now=100.0) == []
        store = Listener(stack)
        assert monitor.look(now=101.0) == []
        tracker.kill()
        store.kill()
        assert monitor.look(now=107.0) == []
        assert monitor.look(now=113.0) == []
        server.kill()
        assert monitor.look(now=200.0) == []
        (gone,) = monitor.look(now=206.0)
        assert "parameter server" in gone


def test_server_monitor_sets_keep_alive_on_cluster_connections_only():
    with ExitStack() as stack:
        tracker, scheduler, server = Listener(stack), Listener(stack), Listener(stack)
        monitor_servers(scheduler.address, [server.address], print).look(now=100.0)
        keeps = [
            each.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in (tracker, scheduler, server)
        ]
        assert keeps == [0, 1, 1]


def test_server_monitor_watches_a_name_once_it_resolves(monkeypatch):
    known: dict[str, list[str]] = {}
    monkeypatch.setattr(names, "resolve", lambda host: known.get(host, []))
    monkeypatch.setattr(names, "RESOLVE_EVERY", 0.0)
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        peers: Peers[str] = Peers()
        peers.add("scheduler", *scheduler.address)
        peers.add("server", "cloud2", server.address[1])
        for _ in range(10):
            assert peers.connected() == {"scheduler"}
        known["cloud2"] = ["127.0.0.1"]
        while peers.connected() != {"scheduler", "server"}:
            time.sleep(0.001)
        server.kill()
        assert peers.connected() == {"scheduler"}


def test_server_monitor_forgives_a_connection_that_comes_back():
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        monitor = monitor_servers(scheduler.address, [server.address], print, grace=5.0)
        monitor.look(now=100.0)
        server.connection.close()
        assert monitor.look(now=104.0) == []
        stack.enter_context(socket.create_connection(server.address))
        assert monitor.look(now=104.5) == []
        assert monitor.look(now=110.0) == []


def test_server_monitor_close_ends_its_thread():
    monitor = monitor_servers(("127.0.0.1", 1), [("127.0.0.1", 2)], print)
    monitor.start()
    monitor.close()
    monitor.join(60)
    assert not monitor.is_alive()


def test_keep_alive_is_set_on_outgoing_connections_also_later_ones():
    """A machine that loses power ends no connection, so a server's monitor relies on keep-alive."""
    with ExitStack() as stack:
        outgoing, kept = OutgoingConnections(), []
        for _ in range(2):
            listener = Listener(stack)
            assert not listener.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert listener.address in outgoing.connected()
            kept.append(listener)
            for each in kept:
                assert each.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert each.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == config.KEEP_ALIVE[0]
