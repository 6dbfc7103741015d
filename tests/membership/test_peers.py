"""A worker's monitor of scheduler and servers, with real sockets."""

import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack

from esync import config
from esync.membership.monitor import monitor_servers
from esync.membership.peers import OutgoingConnections

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


def test_server_monitor_names_the_peers_that_are_gone():
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        monitor = monitor_servers(scheduler.address, [server.address], print, grace=5.0)
        assert monitor.check(now=100.0) == []
        server.kill()
        assert monitor.check(now=101.0) == []
        assert monitor.check(now=105.5) == []  # it may connect again
        names = [f"the parameter server at 127.0.0.1:{server.address[1]}"]
        assert monitor.check(now=106.5) == names
        scheduler.kill()
        assert monitor.check(now=107.0) == names
        assert monitor.check(now=112.5) == [*names, f"the scheduler at 127.0.0.1:{scheduler.address[1]}"]


def test_server_monitor_reports_each_lost_peer_once():
    """A worker that has lost the scheduler at the end of a run may still need the servers."""
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        reports: list[str] = []
        reported = threading.Event()

        def lost(who: str) -> None:
            reports.append(who)
            reported.set()

        monitor = monitor_servers(scheduler.address, [server.address], lost, grace=0.1)
        assert monitor.check(now=time.monotonic()) == []
        monitor.start()
        stack.callback(monitor.close)
        for listener in (scheduler, server):
            reported.clear()
            listener.kill()
            assert reported.wait(60)
        assert [who.split(" at ")[0] for who in reports] == ["the scheduler", "the parameter server"]
        monitor.close()
        monitor.join(60)
        assert not monitor.is_alive()


def test_server_monitor_ignores_other_connections():
    with ExitStack() as stack:
        tracker = Listener(stack)  # before anything of the cluster is there
        scheduler, server = Listener(stack), Listener(stack)
        monitor = monitor_servers(scheduler.address, [server.address], print, grace=5.0)
        assert monitor.check(now=100.0) == []
        store = Listener(stack)
        assert monitor.check(now=101.0) == []
        tracker.kill()
        store.kill()
        assert monitor.check(now=107.0) == []
        assert monitor.check(now=113.0) == []
        server.kill()
        assert monitor.check(now=200.0) == []
        (message,) = monitor.check(now=206.0)
        assert "parameter server" in message


def test_server_monitor_sets_keep_alive_on_cluster_connections_only():
    with ExitStack() as stack:
        tracker, scheduler, server = Listener(stack), Listener(stack), Listener(stack)
        monitor_servers(scheduler.address, [server.address], print).check(now=100.0)
        keeps = [
            listener.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for listener in (tracker, scheduler, server)
        ]
        assert keeps == [0, 1, 1]


def test_server_monitor_forgives_a_connection_that_comes_back():
    with ExitStack() as stack:
        scheduler, server = Listener(stack), Listener(stack)
        monitor = monitor_servers(scheduler.address, [server.address], print, grace=5.0)
        monitor.check(now=100.0)
        server.connection.close()
        assert monitor.check(now=104.0) == []
        stack.enter_context(socket.create_connection(server.address))
        assert monitor.check(now=104.5) == []
        assert monitor.check(now=110.0) == []


def test_keep_alive_is_set_on_outgoing_connections_also_later_ones():
    """A machine that loses power ends no connection, so a server's monitor relies on keep-alive."""
    with ExitStack() as stack:
        outgoing, listeners = OutgoingConnections(), []
        for _ in range(2):
            listener = Listener(stack)
            assert not listener.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert listener.address in outgoing.connected()
            listeners.append(listener)
            for other in listeners:
                assert other.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert other.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == config.KEEP_ALIVE[0]
