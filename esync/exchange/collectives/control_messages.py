"""Control messages between the workers of a collective: commits, stop, abort, goodbye.

They are the same records as with a parameter server (wire.MESSAGE), from every rank to every other
one. All ranks count them in the same way, so nobody has to decide for the others: whatever is said
before a commit counts with that commit, and rank 0's clock is the common one.
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
        clock: of rank 0, in seconds.
        stop: whether some rank has asked for the end.
        notes: a number from each rank, said along with its commit.
    """

    messages: dict[int, Any]
    clock: float
    stop: bool
    notes: tuple[float, ...]


class ControlChannel:
    """One rank's end of the control messages.

    Args:
        transport: to the others.
        nonce: identifies this process.
        scalars: names of those that messages have beside the built-in ones.

    Attributes:
        failed: whether some worker has ended the run because it failed.
    """

    def __init__(self, transport: Transport, nonce: int, scalars: Collection[str] = ()) -> None:
        self._transport, self._nonce, self._scalars = transport, nonce, scalars
        # A message, and the sender's clock in seconds.
        self._record = np.dtype([("message", wire.message_type(scalars)), ("clock", "<f8"), ("note", "<f8")])
        self._peers = [rank for rank in range(transport.size) if rank != transport.rank]
        self._sent: list[tuple[Request, np.ndarray]] = []
        self._heard: dict[int, deque[np.ndarray]] = {rank: deque() for rank in range(transport.size)}
        self._left: set[int] = set()
        self._arriving: dict[int, tuple[Request, np.ndarray]] = {}
        self.clock = time.monotonic
        self.failed = False
        for peer in self._peers:
            self._listen(peer)

    def broadcast(self, kind: int, sequence: int, note: float = 0.0, **fields: Any) -> None:
        """Send a message to every rank, this one included."""
        record = np.zeros((), self._record)
        own = {"rank": self._transport.rank, "nonce": self._nonce, "sequence": sequence}
        record["message"] = wire.message(kind, self._scalars, **own, **fields)
        record["clock"], record["note"] = self.clock(), note
        self._heard[self._transport.rank].append(record)
        packed = np.frombuffer(record.tobytes(), np.uint8)
        self._sent += [(self._transport.isend(packed, peer, CONTROL), packed) for peer in self._peers]

    def poll(self) -> None:
        """Take in the messages that have arrived.

        Raises:
            JobAbortedError: some worker has ended the run because it failed.
        """
        self._sent = [each for each in self._sent if not each[0].done()]
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
            self._heard[peer].append(record)

    def missing(self, sequence: int) -> list[int]:
        """Return the ranks that have not committed in this exchange yet.

        Raises:
            ExchangeError: one of them has left.
        """
        late = [
            rank for rank, records in self._heard.items() if not any(_is_commit(record, sequence) for record in records)
        ]
        if gone := self._left.intersection(late):
            raise ExchangeError(
                f"worker {min(gone)} has left before the others were done: with a collective, every worker takes part "
                "in every exchange"
            )
        return late

    def pop_commits(self, sequence: int) -> Commits:
        """Return the commits of an exchange in which no rank is missing.

        The messages before them are handled with them.
        """
        messages, stop, clock, notes = {}, False, 0.0, []
        for rank, records in self._heard.items():
            while True:
                record = records.popleft()
                stop = stop or record["message"]["kind"] == wire.STOP
                if _is_commit(record, sequence):
                    break
            messages[rank] = record["message"]
            notes.append(float(record["note"]))
            if rank == 0:
                clock = float(record["clock"])
        return Commits(messages, clock, stop, tuple(notes))

    @property
    def remaining_peers(self) -> list[int]:
        """Ranks that have not said goodbye yet."""
        return [peer for peer in self._peers if peer not in self._left]

    @property
    def flushed(self) -> bool:
        """Whether no message of this rank is still on its way."""
        return not self._sent

    def _listen(self, peer: int) -> None:
        packed = np.zeros(self._record.itemsize, np.uint8)
        self._arriving[peer] = self._transport.irecv(packed, peer, CONTROL), packed


def _is_commit(record: np.ndarray, sequence: int) -> bool:
    message = record["message"]
    return bool(message["kind"] == wire.COMMIT and message["sequence"] == sequence)
