"""The interface of stores, which carry messages between one worker and the parameter servers.

Two stores implement it, MXNet's key store (`keystores.mxnet_store`) and a modelled network in
virtual time (`simulate.store`); the tests have one with servers in the same process, under a
scheduler that decides in what order things arrive. Whatever takes time, or is left to chance, is
asked of the store: the client above knows neither clocks nor threads.

Every array belongs to a key, and its first `wire.HEADER_ELEMENTS` values are the header. A key
store keeps the first array of a key without looking at it, and every later one must be of the same
size; a store sees to that by itself. Arrays of different keys may overtake one another on their
way, and messages too.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ... import config
from .handshake import Command, Handshake
from .status import Status

#: A key of a server, and the number of values of its array, the header included.
ArraySpec = tuple[int, int]
#: Seconds between two looks at the status: the first pause, its growth, the longest.
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.0005, 1.5, 0.01


def heartbeat_interval(lease: float) -> float:
    """Return the seconds between two heartbeats of a worker with this lease.

    The lease is in seconds, or infinite.
    """
    return min(lease / 4, config.HEARTBEAT_EVERY)


class CancelledError(RuntimeError):
    """The task was cancelled while it waited."""


class StoreWait(Protocol):
    """A wait that the store watches over.

    Attributes:
        what: what is awaited, and from whom, in words.
    """

    what: Any

    def check(self) -> None:
        """Raise an error that names `what` if the wait has lasted too long."""


class StoreTask(Protocol):
    """Work that goes on beside the worker's own."""

    def done(self) -> bool:
        """Return whether the work is done or has failed, without waiting."""
        ...

    def wait(self) -> None:
        """Wait for its end, and raise the error with which it has failed."""

    def cancel(self) -> None:
        """End the task, and return when it has ended.

        A wait in `Store.await_acknowledged` raises CancelledError.
        """


class Store(Protocol):
    """One worker's connection to the servers.

    Attributes:
        rank: this worker's slot.
        workers: number of slots.
        servers: number of servers.
        nonce: a random number of this process only.
        address: at which this worker listens, host:port; "" where nobody need know.
        replacement: seconds that the servers wait for another process in this one's place, once it
            is gone.
        lease: seconds of silence after which the servers go on without a worker; infinite: they
            wait.
        bucket_elements: the most values in one array.
        carries_values: whether values are sent; else only the sizes of arrays count, and `buffer`
            is never asked for.
        finished: whether this worker has been told that the run is finished. Servers from which it
            needs nothing any more may go then.
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

    def sizes(self, own: Mapping[str, int]) -> Mapping[str, int]:
        """Return how many values of each vector travel, by name.

        `own` has the numbers of values of this worker's model.
        """
        ...

    # --- time, and what goes on beside ------------------------------------------------------------

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def inject_delay(self) -> None:
        """Delay a straggler on purpose; called before a payload or a request for a model leaves."""

    def spawn(self, work: Callable[[], None]) -> StoreTask:
        """Start work that goes on beside the worker's own."""
        ...

    def start_heartbeats(self, beat: Callable[[], None]) -> None:
        """Begin to call `beat`, which may wait for the servers, at intervals in the background.

        The calls stop while `progressed` has not been called for half of the time that a worker
        waits for others in a round, so that the others go on without a worker that hangs before
        they give up.
        """

    def progressed(self) -> None:
        """Note that this worker's program has made progress, and does not hang."""

    def waiting(self, what: str) -> AbstractContextManager[StoreWait]:
        """Watch over a with statement that waits.

        After a while it says what is awaited, and after a limit it gives up.
        """
        ...

    # --- arrays and messages ----------------------------------------------------------------------

    def send_handshake(self, handshake: Handshake) -> None:
        """Introduce this worker to all servers, which can be sent to from then on."""

    def command(self, command: Command) -> None:
        """Send a command to all servers; return when they have it."""

    def buffer(self, key: int, elements: int) -> np.ndarray:
        """Return the buffer for the array of a key: float32, the header included.

        The array is put there before it is sent. Nothing of that key may be under way. The buffer
        belongs to the caller until it is sent.

        Raises:
            ValueError: the key is bound to another number of elements.
        """
        ...

    def init_shared(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """Set up keys that all workers share, with the arrays in their buffers; specs by server.

        All workers call it, and it returns when all have, except in a job that runs already, whose
        keys are there. Rank 0's arrays count.
        """

    def open(self, specs: Sequence[Sequence[ArraySpec]]) -> None:
        """Set up keys of this worker's own on the servers, with the arrays in their buffers."""

    def send(
        self,
        server: int,
        specs: Iterable[ArraySpec],
        message: Mapping[str, Any] | None = None,
        others: Sequence[Any] = (),
    ) -> None:
        """Send the arrays in the buffers of these keys, and a message behind them; does not wait.

        It may be called several times for one payload: with arrays alone, and at last with the
        message, whose fields are those of `wire.MESSAGE`. A key that is not set up is set up on the
        way. With a commit go those of `others` of the same host (records of `wire.message_type`).
        """

    def fetch(self, server: int, specs: Sequence[ArraySpec]) -> Iterable[np.ndarray]:
        """Ask for the arrays of these keys, and return an iterator over them as they come.

        They include their headers. The request leaves at once. The arrays are the store's, to be
        read until the next array of the same key.
        """
        ...

    def release(self, keys: Collection[int]) -> None:
        """Forget the buffers of these keys."""

    def flush(self) -> None:
        """Wait until everything that was sent has left."""

    def statuses(self) -> list[Status]:
        """Return the present statuses of all servers."""
        ...

    def acknowledged(self, sequence: int, look: Callable[[Status], None]) -> list[Status] | None:
        """Return the servers' statuses once all have dealt with an exchange of this worker.

        It looks once and does not wait; until then it returns None.

        Args:
            sequence: number of the exchange.
            look: called with every status that is seen; may raise.
        """
        ...

    def await_acknowledged(self, sequence: int, look: Callable[[Status], None]) -> list[Status]:
        """Wait until all servers have dealt with an exchange of this worker; return their statuses.

        The arguments are those of `acknowledged`.

        Raises:
            CancelledError: the task that waits was cancelled.
        """
        ...

    def close(self, message: Mapping[str, Any] | None) -> None:
        """Send every server a last message, if any, and disconnect.

        It does not wait for other workers.
        """
