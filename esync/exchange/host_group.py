"""The interface to the memory that the workers of one host share, through which they exchange as one.

The workers of a host write their payloads to shared memory. One of them, the *carrier*, adds them
up and sends the servers one payload with the commits of all, and one fetches the answer for all; see
`protocol.host_exchange`. This interface provides the memory: a table that is changed under a lock,
and arrays.

There are three implementations: shared memory of processes (`keystores.shared_host_group`), the
memory of one process for tests (`keystores.memory_host_group`), and based on it that of the
simulator (`simulate.host_group`), in which copies take virtual time and may have no values.

They guarantee, so that a worker may be killed at any time:

* The lock is released when its holder dies.
* Changes to the table are atomic: they apply when the lock is released, and not at all if the
  holder dies before. (There are two copies of the table, and an index of 8 bytes is switched.)
* `alive` is False as soon as a process has been killed.

Arrays are not locked; according to the table, only one worker at a time writes to them.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

#: Value of the field "carrier" if there is none.
NOBODY = -1


@dataclass(frozen=True)
class HostMemoryPlan:
    """The sizes of the shared memory, which must be the same for all workers of the host.

    Memory of k workers, in bytes: 4 · (k · Σ contributions + 2 · residual + Σ answers), and the
    table.

    Attributes:
        contributions: name of each vector → float32 values of each worker's array.
        residual: float32 values in each of the two buffers of the host's error feedback; 0: none.
        answers: server → float32 values in the array for its answers, including headers.
        table: type of the table; see `table_type`.
    """

    contributions: Mapping[str, int]
    residual: int
    answers: Sequence[int]
    table: np.dtype


class HostGroup(Protocol):
    """The shared memory of one host, as one of its workers uses it.

    Attributes:
        rank: of this worker.
        ranks: of all workers of this host in the description, in order. If this worker is the only
            one, no method is called.
        max_size: the most workers on any host of the job, equal for all workers
            (`Specification.per_host`).
    """

    rank: int
    ranks: tuple[int, ...]
    max_size: int

    def join(self, plan: HostMemoryPlan) -> bool:
        """Create the shared memory, or attach to it; `alive` is True for this rank from now on.

        The table of new memory contains zeros.

        Returns:
            Whether this worker has joined. If not, for instance because a hanging process still
            holds its rank, it exchanges alone, and calls no method but `leave`.

        Raises:
            ExchangeError: there is not enough memory, or the other workers' plan differs.
        """
        ...

    def locked(self) -> AbstractContextManager[np.ndarray]:
        """Lock the table while the body of a with statement runs.

        The context is the table, a zero-dimensional structured array of type
        `HostMemoryPlan.table`, valid only in the body. Changes to it apply, all at once, when the
        body ends without an error. The body has to be short (a copy of `residual` at most); it must
        not wait, nor call methods other than `alive` and `residual`.
        """
        ...

    def alive(self, rank: int) -> bool:
        """Return whether a process that has joined with this rank is alive.

        It may be a replacement of the process that has written to the table; compare nonces.
        """
        ...

    def contribution(self, rank: int, vector: str) -> np.ndarray:
        """Return the float32 array for a vector of a worker; always the same memory."""
        ...

    def residual(self, which: int) -> np.ndarray:
        """Return one of the two float32 buffers (0 or 1) of the residual, initially zeros."""
        ...

    def answer(self, server: int) -> np.ndarray:
        """Return the float32 array that a server's answer is copied to."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until the table may have changed, at most this many seconds."""
        ...

    def moved(self, elements: int) -> None:
        """Report that this worker has read and written that many float32 values in memory.

        It is called after each pass, and takes time in the simulator.
        """
        ...

    def leave(self) -> None:
        """Detach from the memory; `alive` is False for this rank from now on. May be repeated."""
        ...


@lru_cache
def table_type(ranks: int, servers: int, message: np.dtype) -> np.dtype:
    """Return the type of a host's table.

    Args:
        ranks: number of workers on this host.
        servers: number of servers.
        message: type of a commit; `wire.message_type`.
    """
    worker = [
        ("nonce", "<i8"),  # of the process with this rank; 0: none yet
        ("next_round", "<i8"),  # the earliest round that it may take part in next; 0: none
        ("contributed", "<i8"),  # round of its contribution; 0: none
        ("vectors", "<i8"),  # vectors of its contribution: bit i is the i-th of the layout
        ("commit", message),  # of its contribution
        # The group that its contribution is part of:
        ("carrier", "<i4"),  # rank of the carrier, or NOBODY
        ("begun", "<i4"),  # 1: the carrier may have sent a commit
        ("carrier_nonce", "<i8"),
        ("members", "<i8", (ranks,)),  # nonce of each member, in the order of `HostGroup.ranks`; 0: not a member
        ("sequences", "<i8", (ranks,)),  # sequence number of each member's commit
        ("gathered", "<f8"),  # when the last member had contributed; seconds of the host's monotonic clock
    ]
    return np.dtype(
        [
            ("workers", worker, (ranks,)),  # in the order of `HostGroup.ranks`
            ("residual", "<i8"),  # number of replacements of the residual; modulo 2, the valid buffer
            # The answer in the shared memory, which may be incomplete:
            ("round", "<i8"),  # round of the answer; 0: none
            ("fetcher", "<i4"),  # rank of the worker that fetches it
            ("returned", "<i8"),  # its vectors, as in "vectors"
            ("fetcher_nonce", "<i8"),
            ("complete", "<i4", (servers,)),  # 1: all arrays of that server have arrived, 2: they do not fit
        ]
    )
