"""The interface of stores, which carry arrays and messages between one worker and the servers.

It is implemented by MXNet's key store (`keystores.mxnet_store`), by a modelled network in virtual
time (`simulate.store`), and in the tests by servers in the same process, under a scheduler that
chooses the order of arrival. The client has no clocks and threads of its own; it uses the store's.

Every array belongs to a key, and its first `wire.HEADER_ELEMENTS` values are the header. MXNet's
key store keeps the first array of a key unread, and later ones must have the same size; stores
ensure both. Arrays of different keys may overtake one another, and so may messages.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ... import config
from .handshake import Command, Handshake
from .status import Status

#: A key, and the number of values of its array, including the header.
ArraySpec = tuple[int, int]
#: Seconds between two polls of the status: the first pause, its growth, the longest.
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.0005, 1.5, 0.01


def heartbeat_interval(lease: float) -> float:
    """Return the seconds between two heartbeats of a worker with this lease (seconds)."""
    return min(lease / 4, config.HEARTBEAT_EVERY)


class CancelledError(RuntimeError):
    """The task was cancelled while it waited."""


class StoreWait(Protocol):
    """A wait that the store monitors.

    Attributes:
        what: a phrase that names what is awaited, and from whom.
    """

    what: Any

    def check(self) -> None:
        """Raise an error that contains `what` if the wait has lasted too long."""


class StoreTask(Protocol):
    """A task in the background."""

    def done(self) -> bool:
        """Return whether the task has ended or failed, without waiting."""
        ...

    def wait(self) -> None:
        """Wait for the end of the task; raise the error with which it has failed."""

    def cancel(self) -> None:
        """Cancel the task, and return when it has ended.

        A call of `Store.await_acknowledged` in it raises CancelledError.
        """


class Store(Protocol):
    """One worker's connection to the servers.

    Attributes:
        rank: this worker's slot.
        workers: number of slots.
        servers: number of servers.
        nonce: a random number of this process.
        address: at which this worker listens, host:port; "" if it is not needed.
        replacement: seconds that the servers wait for a replacement once this worker is gone.
        lease: seconds of silence after which the servers go on without a worker; infinite: never.
        bucket_elements: the most values in one bucket.
        carries_values: whether values are sent; else only the sizes of arrays count, and `buffer`
            is never called.
        finished: whether this worker knows that the run is finished. Servers that it does not need
            any more may exit then.
    """

    rank: int
    workers: int
    servers: int
    nonce: int
    address: str
    replacement: float
    lease: float
    bucket_elements: int
    carries_values: bool
    finished: bool = False

    def sizes(self, model: Mapping[str, int]) -> Mapping[str, int]:
        """Return the number of values of each vector that are sent, given those of the model."""
        ...

    # --- time and background tasks ----------------------------------------------------------------

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this time."""

    def inject_delay(self) -> None:
        """Delay an artificial straggler; called before a payload is sent or a model is requested."""

    def spawn(self, work: Callable[[], None]) -> StoreTask:
        """Start a task in the background."""
        ...

    def start_heartbeats(self, beat: Callable[[], None]) -> None:
        """Start to call `beat`, which may wait for the servers, at intervals in the background.

        The calls pause if `progressed` has not been called for half of the round timeout. So the
        other workers go on without a worker that hangs before their own timeout.
        """

    def progressed(self) -> None:
        """Note that this worker's program makes progress, so heartbeats continue."""

    def waiting(self, what: str) -> AbstractContextManager[StoreWait]:
        """Monitor the body of a with statement, which waits for `what`.

        A long wait is reported; after a limit, `StoreWait.check` raises an error.
        """
        ...

    # --- arrays and messages ----------------------------------------------------------------------

    def send_handshake(self, handshake: Handshake) -> None:
        """Send the handshake to all servers; arrays and messages can be sent after that."""

    def command(self, command: Command) -> None:
        """Send a command to all servers; return when they have received it."""

    def buffer(self, key: int, elements: int) -> np.ndarray:
        """Return the buffer for the array of a key: float32, including the header.

        The caller writes the array there before it sends it. No earlier array of that key may still
        be on its way.

        Raises:
            ValueError: the key is bound to another number of elements.
        """
        ...

    def init_shared(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """Set up keys that all workers share, with the arrays in the buffers of rank 0.

        All workers call it, and it returns when all have done so. In a running job it returns at
        once, because the keys exist.

        Args:
            specs: arrays by server.
        """

    def open(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """Set up keys of this worker alone, with the arrays in their buffers; specs by server."""

    def send(
        self,
        server: int,
        specs: Iterable[ArraySpec],
        message: Mapping[str, Any] | None = None,
        others: Sequence[Any] = (),
    ) -> None:
        """Send the arrays in the buffers of these keys, then a message, without waiting.

        It may be called several times for one payload: with arrays alone, and at last with the
        message. Keys that do not exist are set up.

        Args:
            server: its number.
            specs: of the arrays.
            message: the fields of the message (wire.MESSAGE).
            others: with a commit, those of other workers of the host (wire.message_type).
        """

    def fetch(self, server: int, specs: Sequence[ArraySpec]) -> Iterable[np.ndarray]:
        """Request the arrays of these keys, and return an iterator over them as they arrive.

        The request is sent at once. The arrays include their headers. They belong to the store, and
        are valid until the next array of the same key.
        """
        ...

    def release(self, keys: Collection[int]) -> None:
        """Free the buffers of these keys."""

    def flush(self) -> None:
        """Wait until everything has been sent."""

    def statuses(self) -> list[Status]:
        """Fetch the statuses of all servers."""
        ...

    def acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status] | None:
        """Poll the servers once; return their statuses if all have acknowledged an exchange, else None.

        Args:
            sequence: number of this worker's exchange.
            check: called with every status that is read; may raise.
        """
        ...

    def await_acknowledged(self, sequence: int, check: Callable[[Status], None]) -> list[Status]:
        """Wait until all servers have acknowledged an exchange, and return their statuses.

        See `acknowledged` for the arguments.

        Raises:
            CancelledError: the task that waits was cancelled.
        """
        ...

    def close(self, message: Mapping[str, Any] | None) -> None:
        """Send every server a last message, if any, and disconnect, without waiting for others."""
