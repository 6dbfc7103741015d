"""The check of new connections to MXNet's port, with real sockets of this process."""

import socket
import time
from contextlib import ExitStack, suppress

import pytest

from esync.exchange.keystores.sender_check import SenderCheck
from esync.membership.connections import listening

SIGNATURE = b"\xff\0\0\0\0\0\0\0\x01\x7f"
TIME_LIMIT = 30.0  # seconds for what has to arrive
NEVER = 0.7  # seconds in which something else does not


def conversation(stack: ExitStack, server: socket.socket, first: bytes) -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection whose first bytes are these."""
    client = stack.enter_context(socket.create_connection(server.getsockname()))
    connection, _ = server.accept()
    stack.enter_context(connection)
    client.sendall(first)
    return connection, client


def listener(stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_server(("127.0.0.1", 0)))


def hears(connection: socket.socket, seconds: float, size: int = 1) -> bytes:
    """What arrives within that time, of so many bytes that are expected."""
    connection.settimeout(seconds)
    heard = b""
    with suppress(TimeoutError):
        while len(heard) < size:
            heard += connection.recv(size - len(heard))
    return heard


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


#: First bytes of senders that do not speak ZeroMQ.
STRANGERS = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + 200 * b"x" + b"\r\n\r\n",
    b"\x01\x00\x03\x00abc",  # a message in the first version of ZeroMQ's protocol
    SIGNATURE[:9],
    SIGNATURE[:9] + b"\x7e" + bytes(50),
    bytes(64),
]


def test_sender_check_closes_connections_that_do_not_speak_zeromq(stack):
    check = SenderCheck(listening())
    server = listener(stack)
    assert check.scan()
    ends = []
    for first in STRANGERS:
        connection, client = conversation(stack, server, first)
        client.sendall(b"and on it goes")
        ends.append(connection)
    for _ in range(2):
        check.scan()
        time.sleep(NEVER)
        assert [hears(connection, 0.01) for connection in ends] == [b""] * len(STRANGERS)


def test_sender_check_passes_connections_with_the_zeromq_signature(stack):
    check = SenderCheck(listening())
    server = listener(stack)
    check.scan()
    connection, client = conversation(stack, server, SIGNATURE)
    assert hears(connection, TIME_LIMIT, 10) == SIGNATURE
    client.sendall(b"abc")  # too early: the kernel sends it again
    check.scan()
    assert hears(connection, TIME_LIMIT, 3) == b"abc"
    connection.sendall(b"xyz")
    assert hears(client, TIME_LIMIT, 3) == b"xyz"


def test_sender_check_leaves_other_ports_of_the_process_alone(stack):
    before = listener(stack)
    check = SenderCheck(listening())
    meant = listener(stack)
    meanwhile = listener(stack)  # opened by the user's program
    check.scan()
    assert hears(conversation(stack, before, b"hello")[0], TIME_LIMIT, 5) == b"hello"
    late, _ = conversation(stack, meanwhile, b"hello")
    check.settle(meant.getsockname()[1])
    check.scan()
    assert hears(late, TIME_LIMIT, 5) == b"hello"
    assert hears(conversation(stack, meanwhile, b"hello")[0], TIME_LIMIT, 5) == b"hello"
    assert hears(conversation(stack, meant, b"hello there!")[0], NEVER) == b""


def test_sender_check_thread_checks_by_itself_and_ends(stack):
    check = SenderCheck(listening())
    stack.callback(check.over)
    check.start()
    server = listener(stack)
    time.sleep(NEVER)
    connection, client = conversation(stack, server, SIGNATURE)
    client.sendall(b"abc")
    assert hears(connection, TIME_LIMIT, 13) == SIGNATURE + b"abc"
    check.over()
    check.join(TIME_LIMIT)
    assert not check.is_alive()
