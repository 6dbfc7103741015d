"""The interface of stores, which carry messages between one worker and the parameter servers.

Three stores are behind it: MXNet's key store (`keystores.mxnet_store`), servers in the same process
under a scheduler that decides in what order things arrive (`keystores.memory`), and a modelled
network in virtual time (`simulate.store`). Whatever takes time, or is left to chance, is asked of
the store: the client above knows neither clocks nor threads.

Every array belongs to a key, and its first `wire.HEADER_ELEMENTS` values are the header. A key
store keeps the first array of a key without looking at it, and every later one must be of the same
size; how a store sees to that is its own affair. Arrays of different keys may overtake one another
on their way, and messages too.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ... import config
from .handshake import Greeting, Resumed
from .status import Status

#: A key of a server, and the values of its array, the header included.
Place = tuple[int, int]
#: Seconds between two looks at the status: the first pause, its growth, the longest.
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.0005, 1.5, 0.01


def heartbeat_interval(lease: float) -> float:
    """Return the seconds between two heartbeats of a worker whose lease is so many seconds, or infinite."""
    return min(lease / 4, config.HEARTBEAT_EVERY)


class CancelledError(RuntimeError):
    """The task was cancelled while it waited."""


class StoreWait(Protocol):
    """A wait that the store watches over.

    Attributes:
        what: for what and for whom.
    """

    what: str

    def check(self) -> None:
        """Raise an error that names `what` where it has lasted too long."""


class StoreTask(Protocol):
    """Work that goes on beside the worker's own."""

    def done(self) -> bool:
        """Tell, without waiting, whether the work is done or has failed."""
        ...

    def wait(self) -> None:
        """Wait for its end; raises what it has failed with."""

    def cancel(self) -> None:
        """End it: a wait in `Store.await_acknowledged` raises CancelledError. Returns when it has ended."""


class Store(Protocol):
    """One worker's way to the servers.

    Attributes:
        rank: this worker's slot.
        workers: number of slots.
        servers: number of servers.
        nonce: a random number of this process only.
        address: where this worker listens, host:port; "" where nobody need know.
        replacement: seconds that the servers wait for another process in this one's place, once it
            is gone.
        lease: seconds of silence after which the servers go on without a worker; infinite: they
            wait.
        bucket_elements: the most values in one array.
        carries_values: whether values are sent; else only the sizes of arrays count, and `buffer`
            is never asked for.
        finished: whether this worker has been told that the run is finished. Servers that it asks
            for nothing any more may go then.
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
        """Return how many values of each vector travel, by name, given how many this worker's model has."""
        ...

    # --- time, and what goes on beside ------------------------------------------------------------

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def inject_delay(self) -> None:
        """Let a straggler on purpose wait; called before a payload or the request for a model leaves."""

    def spawn(self, work: Callable[[], None]) -> StoreTask:
        """Let work go on beside the worker's own."""
        ...

    def heartbeats(self, what: str, beat: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `beat` again and again, in the background, while the body of a with statement runs.

        The calls end when the body has lasted for half of the time that a worker waits for others
        in a round, so that the others go on without a worker that hangs before they give up.

        Args:
            what: what the body does.
            beat: sends a heartbeat; must not wait.
        """
        ...

    def waiting(self, what: str, hint: str = "") -> AbstractContextManager[StoreWait]:
        """Watch over a with statement that waits: says for what after a while, and gives up after a limit."""
        ...

    # --- arrays and messages ----------------------------------------------------------------------

    def greet(self, greeting: Greeting) -> None:
        """Introduce this worker to all servers; they can be sent to from then on."""

    def command(self, command: Greeting | Resumed) -> None:
        """Send a command to all servers; returns when they have it."""

    def buffer(self, key: int, elements: int) -> np.ndarray:
        """Return the buffer that the array of a key is put into before it is sent: float32, the header included.

        Nothing of that key may be under way. It belongs to the caller until it is sent.

        Raises:
            ValueError: the key is bound to another number of elements.
        """
        ...

    def init_shared(self, places: Sequence[Sequence[Place]]) -> None:
        """Set up keys that all workers share, with the arrays in their buffers; server → places.

        All workers call it, and nobody returns before everybody has, except in a job that runs
        already, whose keys are there. Rank 0's arrays count.
        """

    def open(self, places: Sequence[Sequence[Place]]) -> None:
        """Set up keys of this worker's own, with the arrays in their buffers, which the servers are shown."""

    def send(self, server: int, places: Iterable[Place], message: Mapping[str, Any] | None = None) -> None:
        """Send the arrays in the buffers of these keys, and a message behind them; does not wait.

        May be called several times for one payload: with arrays alone, and at last with the
        message, whose fields are those of `wire.MESSAGE`. A key that is not set up is set up on the
        way.
        """

    def fetch(self, server: int, places: Sequence[Place]) -> Iterable[np.ndarray]:
        """Ask for the arrays of these keys, and return them one by one as they come, headers included.

        The request leaves at once. The arrays are the store's, to be read until the next array of
        the same key.
        """
        ...

    def release(self, keys: Collection[int]) -> None:
        """Forget the buffers of these keys."""

    def flush(self) -> None:
        """Wait until everything that was sent has left."""

    def statuses(self) -> list[Status]:
        """The statuses of all servers as they are now."""
        ...

    def acknowledged(self, sequence: int, look: Callable[[Status], None]) -> list[Status] | None:
        """Look once whether all servers have dealt with an exchange of this worker: their statuses, or None.

        Args:
            sequence: number of the exchange.
            look: called with every status that is seen; may raise.
        """
        ...

    def await_acknowledged(self, sequence: int, look: Callable[[Status], None]) -> list[Status]:
        """The same, as soon as they have.

        Raises:
            CancelledError: the task that waits was cancelled.
        """
        ...

    def close(self, message: Mapping[str, Any] | None) -> None:
        """Send every server a last message (None: nothing), and let go of them; does not wait for other workers."""
