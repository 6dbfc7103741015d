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
    there = stack.enter_context(socket.create_connection(server.getsockname()))
    here, _ = server.accept()
    stack.enter_context(here)
    there.sendall(first)
    return here, there


def hears(here: socket.socket, seconds: float, size: int = 1) -> bytes:
    """What arrives within that time, of so many bytes that are expected."""
    here.settimeout(seconds)
    heard = b""
    with suppress(TimeoutError):
        while len(heard) < size:
            heard += here.recv(size - len(heard))
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
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    assert check.scan()
    ends = []
    for first in STRANGERS:
        here, there = conversation(stack, server, first)
        there.sendall(b"and on it goes")
        ends.append(here)
    for _ in range(2):
        check.scan()
        time.sleep(NEVER)
        assert [hears(here, 0.01) for here in ends] == [b""] * len(STRANGERS)


def test_sender_check_passes_connections_with_the_zeromq_signature(stack):
    check = SenderCheck(listening())
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    check.scan()
    here, there = conversation(stack, server, SIGNATURE)
    assert hears(here, TIME_LIMIT, 10) == SIGNATURE
    there.sendall(b"abc")  # too early: the kernel sends it again
    check.scan()
    assert hears(here, TIME_LIMIT, 3) == b"abc"
    here.sendall(b"xyz")
    assert hears(there, TIME_LIMIT, 3) == b"xyz"


def test_sender_check_leaves_other_ports_of_the_process_alone(stack):
    before = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    check = SenderCheck(listening())
    meant = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    meanwhile = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # opened by the user's program
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
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    time.sleep(NEVER)
    here, there = conversation(stack, server, SIGNATURE)
    there.sendall(b"abc")
    assert hears(here, TIME_LIMIT, 13) == SIGNATURE + b"abc"
    check.over()
    check.join(TIME_LIMIT)
    assert not check.is_alive()
