"""The scheduler as a process, with scripted ps-lite nodes and strangers."""

import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from esync.membership.rendezvous import messages
from esync.membership.rendezvous.directory import members
from esync.membership.rendezvous.messages import SERVER, WORKER, Message

from .nodes import FakeNode, garbage, running_scheduler, unchecked

#: May have a hundred files open at the same time.
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"

#: Speaks of its waits soon.
IMPATIENT = "from esync import config; config.ANNOUNCE_AFTER = 0.1"

#: Sees late that everyone has left, as on a busy machine.
SLOW = "from esync import config; config.PEER_TIMEOUT, config.NO_PEERS_TIMEOUT = 0.5, 4.0"


def altered(change: str, *arguments: str, options: str = "") -> list[str]:
    """Return the program of a scheduler that runs `change` first."""
    start = f"""
print("ready", flush=True)
from esync.runtime import program
from esync import scheduler
program.exit_now(scheduler.main({options.split()}))
"""
    return ["-c", change + start, *arguments]


def complete(*nodes: FakeNode) -> list[Message]:
    """The members that each of them hears of."""
    heard = [node.received() for node in nodes]
    assert all(message is not None and message.command == messages.ADD_NODE for message in heard), heard
    return heard


def wait_for_output(process, words: str) -> None:
    """Wait until the scheduler has said something."""
    while words not in (line := process.stderr.readline()):
        assert line, f"it has ended without saying {words!r}"


def well(process, port: int) -> None:
    """The scheduler brings one server and one worker together, and leaves when they have left."""
    with FakeNode(port, SERVER) as server, FakeNode(port, WORKER) as worker:
        for message in complete(server, worker):
            assert {node.port for node in message.nodes} == {server.port, worker.port, port}
        assert process.poll() is None
    assert process.wait(30) == 0, process.stderr.read()


def test_scheduler_misses_no_server_when_everyone_has_left() -> None:
    with running_scheduler(1, 1, altered(SLOW, options="--wait-for-replacement 60")) as (process, port):
        well(process, port)


def test_scheduler_misses_no_server_beside_a_worker_that_it_has_never_seen_connected() -> None:
    """Both leave at once, after the scheduler has looked at the server only."""
    with running_scheduler(1, 1, altered(SLOW)) as (process, port):
        with FakeNode(port, SERVER) as server:
            time.sleep(0.6)
            with FakeNode(port, WORKER) as worker:
                complete(server, worker)
        assert process.wait(30) == 0, process.stderr.read()


#: Registrations that are wrong in one way each.
WRONG = {
    "a host that nobody knows": unchecked(host="no-such-host.invalid"),
    "a scheduler": unchecked(role=messages.SCHEDULER),
    "port 0": unchecked(port=0),
    "an address of many": unchecked(host="255.255.255.255"),
    "nothing": b"",
    "a number without an end": b"\xff" * 4000,
    "long": bytes(100_000),
}


def test_scheduler_survives_strangers_and_malformed_registrations() -> None:
    """It ends when the members have left, although some of the strangers stay connected."""
    with running_scheduler(servers=1, workers=1) as (process, port), ExitStack() as stack:
        for name, content in WRONG.items():
            garbage(port, [content])
            time.sleep(0.05)
            assert process.poll() is None, name
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # listens, but does not answer
        for role in (SERVER, WORKER):
            garbage(port, [unchecked(role=role, port=silent.getsockname()[1])])
            garbage(port, [unchecked(role=role, port=9)])
        time.sleep(3.0)  # longer than a scheduler stays alone
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        well(process, port)


def test_scheduler_names_whom_it_waits_for_after_the_servers_left() -> None:
    """A hanging worker keeps its connections open, so the scheduler stays."""
    with running_scheduler(1, 2, altered(IMPATIENT)) as (process, port):
        with FakeNode(port, WORKER) as hangs:
            with FakeNode(port, SERVER) as server, FakeNode(port, WORKER) as other:
                complete(server, hangs, other)
                server.send(Message(messages.OVER, (server.node.with_number(8),), request=True).encode(timestamp=0))
            wait_for_output(process, f" at 127.0.0.1:{hangs.port} to leave for ")
        assert process.wait(30) == 0, process.stderr.read()


#: In /proc/net/tcp, which timer of a connection runs: the one after which the kernel asks whether
#: the other is there.
KEEPALIVE_TIMER = "02"


BARRIER = Message(messages.BARRIER, group=7, request=True, app=0, customer=0).encode(timestamp=2)


def test_scheduler_keeps_connections_alive_tells_the_members_and_obeys_only_them() -> None:
    with running_scheduler(1, 1) as (process, port), FakeNode(port, SERVER) as server, FakeNode(port, WORKER) as worker:
        complete(server, worker)
        missing = {server.port, worker.port}
        deadline = time.monotonic() + 15
        while missing and time.monotonic() < deadline:  # a connection with bytes under way has another timer meanwhile
            rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            asked = {row[2] for row in rows if row[5].startswith(KEEPALIVE_TIMER)}
            missing = {port for port in missing if not any(peer.endswith(f":{port:04X}") for peer in asked)}
            time.sleep(0.05)
        assert not missing
        nodes = members(("127.0.0.1", port), lambda: pytest.fail("no answer"))
        assert {number: node.port for number, node in nodes.items()} == {8: server.port, 9: worker.port, 1: port}
        for _ in range(3):
            garbage(port, [BARRIER])
        assert worker.received(0.5) is None
        assert process.poll() is None


def test_scheduler_survives_more_strangers_than_open_files() -> None:
    with running_scheduler(1, 1, altered(FEW_FILES)) as (process, port), ExitStack() as stack:
        server = stack.enter_context(FakeNode(port, SERVER))
        worker = stack.enter_context(FakeNode(port, WORKER))
        complete(server, worker)
        wait_for_output(process, "everyone is here")
        strangers = [stack.enter_context(socket.socket()) for _ in range(150)]
        for stranger in strangers:
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
        time.sleep(4.0)
        assert process.poll() is None, process.stderr.read()


def test_scheduler_admits_members_whose_identity_a_stranger_claimed() -> None:
    with running_scheduler(servers=1, workers=1) as (_, port), ExitStack() as stack:
        for number in (8, 9):
            stranger = stack.enter_context(FakeNode(port, messages.SCHEDULER))
            stranger.has_id(number)
            stranger.send(b"")
        time.sleep(0.5)
        nodes = [stack.enter_context(FakeNode(port, role)) for role in (SERVER, WORKER)]
        complete(*nodes)
        for node, number in zip(nodes, (8, 9), strict=True):
            node.has_id(number)
            node.send(BARRIER)
        for node in nodes:
            message = node.received()
            assert message is not None
            assert message.command == messages.BARRIER


def test_scheduler_ends_when_a_node_dies_before_the_start_barrier_and_names_it() -> None:
    with running_scheduler(servers=1, workers=2) as (process, port), ExitStack() as stack:
        server, worker = (stack.enter_context(FakeNode(port, role)) for role in (SERVER, WORKER))
        with FakeNode(port, WORKER) as victim:
            complete(server, worker, victim)
        for node, number in ((server, 8), (worker, 9 if worker.port < victim.port else 11)):
            node.has_id(number)
            node.send(BARRIER)
        lost = (
            rf"(?m)worker {int(worker.port < victim.port)} at 127.0.0.1:{victim.port} is gone: its connection has ended"
        )
        assert process.wait(60) == 1
        assert re.search(lost, process.stderr.read())
