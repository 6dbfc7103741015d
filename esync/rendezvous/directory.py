"""Who belongs to the cluster, asked of its scheduler: ps-lite knows, but keeps it to itself."""

import contextlib
from collections.abc import Callable

import zmq

from . import messages
from .messages import BadMessageError, Message, Node

#: Milliseconds before the question is put again.
PATIENCE = 1000


def members(host: str, port: int, check: Callable[[], None]) -> dict[int, Node]:
    """The processes that have an id, by id; for one that has one itself.

    Args:
        host: the scheduler's address.
        port: where it listens.
        check: called while there is no answer; raises to give up.
    """
    question = Message(messages.WHO, request=True).encode(timestamp=0)
    with zmq.Context() as context, context.socket(zmq.DEALER) as scheduler:
        scheduler.setsockopt(zmq.LINGER, 0)
        scheduler.connect(f"tcp://{host}:{port}")
        while True:
            scheduler.send(question)
            while scheduler.poll(PATIENCE):
                with contextlib.suppress(BadMessageError):
                    answer = Message.decode(b"".join(scheduler.recv_multipart()[:1]))
                    if answer.command == messages.WHO:
                        return {node.id: node for node in answer.nodes}
            check()
