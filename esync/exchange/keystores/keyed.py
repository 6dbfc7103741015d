"""The base of key stores: it sets up keys, sends and fetches arrays, and reads statuses.

A key store such as ps-lite stores the first array of a key unread, passes later ones to the key's
server, and answers pulls with the stored array. Arrays of the same key arrive in order; arrays of
different keys may overtake one another.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from ..protocol import wire
from ..protocol.handshake import Handshake
from ..protocol.status import Status
from ..protocol.store import ArraySpec, Store

#: The size of messages and of the status is a multiple of this many values.
MESSAGE_BLOCK = 1024


class KeyedStore(Store):
    """A worker's store over a key store.

    Attributes:
        first: whether this process sets up the keys that all workers share.
    """

    first: bool

    def __init__(self) -> None:
        self._ready: set[int] = set()  # keys that are set up on the servers
        self._doubled: set[int] = set()  # keys whose array was sent twice, to set them up
        self._handshake_sent = False
        self._scalars: Collection[str] = ()

    # --- operations of the key store --------------------------------------------------------------

    @abstractmethod
    def _init(self, keys: Sequence[int]) -> None:
        """Store the arrays in the first process's buffers, and wait for all workers to call it."""

    @abstractmethod
    def _meet(self) -> None:
        """Wait until all workers have called it; return at once for a replacement."""

    @abstractmethod
    def _push(self, key: int) -> None:
        """Send the array in a key's buffer, without waiting."""

    @abstractmethod
    def _pull(self, key: int) -> None:
        """Request a key's array, without waiting."""

    @abstractmethod
    def _pulled(self, key: int) -> np.ndarray:
        """Wait for a requested array, and return it; it is in the key's buffer."""

    @abstractmethod
    def _push_message(self, server: int, message: np.ndarray) -> None:
        """Send a packed message, whose key is the number of the server, without waiting."""

    # --- operations of the protocol ---------------------------------------------------------------

    def send_handshake(self, handshake: Handshake) -> None:
        """See `Store.send_handshake`; the first call sets up the keys of messages and the status."""
        self.command(handshake)
        if not self._handshake_sent:
            self._scalars = handshake.specification.scalars
            per_host = handshake.specification.per_host
            # Workers with other scalars, which are refused, must be able to read the reason.
            elements = wire.message_elements(self.workers, self._scalars, per_host)
            self._message_elements = -(-elements // MESSAGE_BLOCK) * MESSAGE_BLOCK
            self._status_type = wire.status_type(self.workers, self._scalars)
            # MXNet puts a key equal to the shard's number on that server, see
            # `layout.Layout.status_key`.
            for server in range(self.servers):
                self.buffer(server, self._message_elements)[:] = 0
            self._init(range(self.servers))
            self._handshake_sent = True
        for server in range(self.servers):  # announces the memory of the status to the server
            self.send(server, (), {"kind": wire.NOTHING, "rank": self.rank, "nonce": self.nonce})
        self.flush()

    @override
    def init_shared(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        keys = _keys(specs)
        self._init(keys)
        if self.first:
            for key in keys:
                self._push(key)  # announces the memory of the shared model to the servers
            self.flush()
        self._meet()  # arrays of the other workers may need the shared model
        self._ready.update(keys)

    @override
    def open(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        keys = _keys(specs)
        for _ in range(2):  # the first array of a key is stored unread
            for key in keys:
                self._push(key)
        self.flush()
        self._ready.update(keys)

    @override
    def send(
        self,
        server: int,
        specs: Iterable[ArraySpec],
        message: Mapping[str, Any] | None = None,
        others: Sequence[Any] = (),
    ) -> None:
        for key, _ in specs:
            if key not in self._ready:
                self._push(key)  # stored unread, unless another worker has set the key up
                self._ready.add(key)
                self._doubled.add(key)
            self._push(key)
        if message is not None:
            record = wire.message(scalars=self._scalars, **message)
            self._push_message(server, wire.pack(record, self._message_elements, others))

    @override
    def fetch(self, server: int, specs: Sequence[ArraySpec]) -> Iterator[np.ndarray]:
        for key, elements in specs:
            array = self.buffer(key, elements)
            if key not in self._ready:
                wire.stamp(array, wire.NOTHING, self.rank, self.nonce, 0, 0)
                self.open([[(key, elements)]])  # the server writes this worker's answer there
        for key, _ in specs:
            self._pull(key)
        return map(self._pulled, [key for key, _ in specs])

    @override
    def statuses(self) -> list[Status]:
        return [self._status(server) for server in range(self.servers)]

    @override
    def acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status] | None:
        acknowledged: list[Status] = []
        return acknowledged if self._poll(sequence, check, acknowledged) is None else None

    # --- helpers ----------------------------------------------------------------------------------

    def _poll(self, sequence: int, check: Callable[[Status], None], acknowledged: list[Status]) -> Status | None:
        """Read the statuses of the next servers, and append those that have acknowledged an exchange.

        Returns:
            The status of the first server that has not acknowledged it; None: all have.
        """
        while len(acknowledged) < self.servers:
            status = self._status(len(acknowledged))
            check(status)
            if status.acknowledged < sequence:
                return status
            acknowledged.append(status)
        return None

    def _status(self, server: int) -> Status:
        self.inject_delay()
        with self.waiting("the status of"):
            self._pull(server)
            packed = self._pulled(server)
        return Status.of_record(wire.unpack(packed, self._status_type), self.rank, server)


def _keys(specs: Sequence[Sequence[ArraySpec]]) -> list[int]:
    return [key for part in specs for key, _ in part]
