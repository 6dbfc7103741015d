"""Control messages between the workers of a collective: commits, stop, abort, goodbye.

They are the records of the parameter server's protocol (wire.MESSAGE), sent from every rank to
every other one. All ranks process them in the same way: a message before a commit takes effect with
that commit, and times are those of rank 0's clock. So no rank has to decide for the others.
"""

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import ExchangeError, JobAbortedError
from ..protocol import wire
from .transport import CONTROL, Request, Transport


@dataclass
class Commits:
    """The commits of one exchange.

    Attributes:
        messages: rank → message.
        clock: time of rank 0, in seconds.
        stop: whether any rank has requested the end of the run.
        seconds: of the last exchange on each rank, sent with its commit.
    """

    messages: dict[int, Any]
    clock: float
    stop: bool
    seconds: tuple[float, ...]


class ControlChannel:
    """One rank's end of the control messages.

    Args:
        transport: to the other ranks.
        nonce: identifies this process.
        scalars: names of the scalars of messages other than the built-in ones.

    Attributes:
        failed: whether the run has been aborted.
    """

    def __init__(self, transport: Transport, nonce: int, scalars: Collection[str] = ()) -> None:
        self._transport, self._nonce, self._scalars = transport, nonce, scalars
        # A message, the sender's time, and the duration of its last exchange, in seconds.
        self._record = np.dtype([("message", wire.message_type(scalars)), ("clock", "<f8"), ("seconds", "<f8")])
        self._peers = [rank for rank in range(transport.size) if rank != transport.rank]
        self._sent: list[tuple[Request, np.ndarray]] = []
        self._received: dict[int, deque[np.ndarray]] = {rank: deque() for rank in range(transport.size)}
        self._left: set[int] = set()
        self._arriving: dict[int, tuple[Request, np.ndarray]] = {}
        self.clock = time.monotonic
        self.failed = False
        for peer in self._peers:
            self._listen(peer)

    def broadcast(self, kind: int, sequence: int, seconds: float = 0.0, **fields: Any) -> None:
        """Send a message to every rank, this one included."""
        record = np.zeros((), self._record)
        sender = {"rank": self._transport.rank, "nonce": self._nonce, "sequence": sequence}
        record["message"] = wire.message(kind, self._scalars, **sender, **fields)
        record["clock"], record["seconds"] = self.clock(), seconds
        self._received[self._transport.rank].append(record)
        packed = np.frombuffer(record.tobytes(), np.uint8)
        self._sent += [(self._transport.isend(packed, peer, CONTROL), packed) for peer in self._peers]

    def poll(self) -> None:
        """Receive the messages that have arrived.

        Raises:
            JobAbortedError: a worker has aborted the run.
        """
        self._sent = [(request, packed) for request, packed in self._sent if not request.done()]
        for peer, (request, packed) in list(self._arriving.items()):
            if not request.done():
                continue
            record = np.frombuffer(packed.tobytes(), self._record, count=1)[0]
            kind = int(record["message"]["kind"])
            if kind == wire.LEAVE:
                self._left.add(peer)
                del self._arriving[peer]
                continue
            self._listen(peer)
            if kind == wire.ABORT:
                self.failed = True
                raise JobAbortedError(bytes(record["message"]["text"]).decode())
            self._received[peer].append(record)

    def missing(self, sequence: int) -> list[int]:
        """Return the ranks whose commits of this exchange have not arrived yet.

        Raises:
            ExchangeError: one of these ranks has left.
        """
        late = [
            rank
            for rank, records in self._received.items()
            if not any(_is_commit(record, sequence) for record in records)
        ]
        if leavers := self._left.intersection(late):
            raise ExchangeError(
                f"worker {min(leavers)} has left before the others were done: with a collective, every worker takes "
                "part in every exchange"
            )
        return late

    def pop_commits(self, sequence: int) -> Commits:
        """Remove and return the commits of an exchange, when no rank is missing.

        Stop messages that were sent before the commits take effect with them.
        """
        messages, stop, clock, seconds = {}, False, 0.0, []
        for rank, records in self._received.items():
            while True:
                record = records.popleft()
                stop = stop or record["message"]["kind"] == wire.STOP
                if _is_commit(record, sequence):
                    break
            messages[rank] = record["message"]
            seconds.append(float(record["seconds"]))
            if rank == 0:
                clock = float(record["clock"])
        return Commits(messages, clock, stop, tuple(seconds))

    @property
    def remaining_peers(self) -> list[int]:
        """Ranks that have not sent a goodbye yet."""
        return [peer for peer in self._peers if peer not in self._left]

    @property
    def flushed(self) -> bool:
        """Whether all messages of this rank have been sent."""
        return not self._sent

    def _listen(self, peer: int) -> None:
        packed = np.zeros(self._record.itemsize, np.uint8)
        self._arriving[peer] = self._transport.irecv(packed, peer, CONTROL), packed


def _is_commit(record: np.ndarray, sequence: int) -> bool:
    message = record["message"]
    return bool(message["kind"] == wire.COMMIT and message["sequence"] == sequence)
