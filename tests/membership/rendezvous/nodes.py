"""Processes of ps-lite for tests, as far as a scheduler sees them.

The scheduler runs in a process of its own.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import zmq

from esync.membership.rendezvous import messages
from esync.membership.rendezvous.messages import BadMessageError, Message, Node

from ...support import child
from ...support.ports import free_port

TIME_LIMIT = 60.0  # seconds for anything to arrive


class FakeNode:
    """Registers as a process of ps-lite does, and listens where it says.

    Args:
        scheduler: port.
        role: SERVER or WORKER.
        address: where it is, and the scheduler with it.
    """

    def __init__(self, scheduler: int, role: int, address: str = "127.0.0.1") -> None:
        self._stack, self._scheduler = ExitStack(), scheduler
        context = self._stack.enter_context(zmq.Context())
        self._inbox = self._stack.enter_context(context.socket(zmq.ROUTER))
        self.port = self._inbox.bind_to_random_port(f"tcp://{address}")
        self._outbox = self._stack.enter_context(context.socket(zmq.DEALER))
        self._outbox.setsockopt(zmq.LINGER, 0)
        self._outbox.connect(f"tcp://{address}:{scheduler}")
        self.node = Node(role, address, self.port)
        self.send(Message(messages.ADD_NODE, (self.node,)).encode(timestamp=1))

    def __enter__(self) -> "FakeNode":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def send(self, content: bytes) -> None:
        """Send the scheduler something."""
        self._outbox.send(content)

    def has_id(self, number: int) -> None:
        """Come again under this id, as ps-lite does when it has been given one."""
        context = self._stack.enter_context(zmq.Context())
        self._outbox = self._stack.enter_context(context.socket(zmq.DEALER))
        self._outbox.setsockopt(zmq.LINGER, 0)
        self._outbox.setsockopt(zmq.IDENTITY, f"ps{number}".encode())
        self._outbox.connect(f"tcp://127.0.0.1:{self._scheduler}")

    def received(self, seconds: float = TIME_LIMIT) -> Message | None:
        """The next message of the scheduler; None where there is none within that time."""
        return Message.decode(self._inbox.recv_multipart()[1]) if self._inbox.poll(int(1000 * seconds)) else None


@contextmanager
def running_scheduler(
    servers: int, workers: int, program: Sequence[str] = ("-m", "esync.scheduler"), **environment: str
) -> Iterator[tuple]:
    """A scheduler that listens: its process, and its port."""
    port = free_port()
    cluster = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_NUM_WORKER": str(workers),
    }
    greet = "import sys; print('ready', flush=True); import runpy; "
    run = "sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
    if program[0] == "-m":
        program = ["-c", greet + run, *program[1:]]
    with child.started(*program, **cluster, **environment) as process:
        deadline = time.monotonic() + TIME_LIMIT
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process, port


def garbage(port: int, frames: Sequence[bytes]) -> None:
    """Send the scheduler a message of these frames."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as outbox:
        outbox.setsockopt(zmq.LINGER, 5000)
        outbox.connect(f"tcp://127.0.0.1:{port}")
        outbox.send_multipart(frames)


def unchecked(**fields: object) -> bytes:
    """A registration that says anything at all."""
    node = Node(**{"role": messages.WORKER, "host": "127.0.0.1", "port": 4000, **fields})  # type: ignore[arg-type]
    content = Message(messages.ADD_NODE, (node,)).encode(timestamp=1)
    with suppress(BadMessageError):
        Message.decode(content)
    return content
