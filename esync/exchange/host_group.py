"""The interface to the memory that the workers of one host share, by which they exchange as one.

Workers of a host write their payloads into memory that all of them can read. One of them, the
*carrier*, adds them up and sends the servers one payload with the commits of all; one of them
fetches the answer for all. `protocol.host_exchange` does that; what is here is what it needs of a
host, in short steps: a table that is changed under a lock, and arrays.

Three implementations: shared memory of processes (`keystores.shared_host_group`), the memory of one
process (`keystores.memory_host_group`, which tests use), and based on it the simulator's
(`simulate.host_group`), which lets time pass for copies and need not have the values.

What they promise, so that a worker may be killed at any moment:

* The lock is released when its holder dies.
* A block under the lock changes the table as a whole when it ends, or not at all: who dies inside
  has changed nothing. (Two copies of the table, and an index that one store of 8 bytes flips.)
* `alive` is False from the moment at which a process has been killed.

Arrays are written by one worker at a time, which the table says; nobody locks them.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

#: In the field "carrier": there is none yet.
NOBODY = -1


@dataclass(frozen=True)
class HostMemoryPlan:
    """The sizes of what the workers of a host share. All of them must have the same.

    Memory in bytes, of k workers: 4 · (k · Σ contributions + 2 · residual + Σ answers).

    Attributes:
        contributions: name of each vector → number of float32 values; every worker has an array for
            each.
        residual: number of float32 values in each of the two buffers of the host's error feedback;
            0: the codec keeps none.
        answers: server → number of float32 values in the array that its answers are copied to,
            headers included.
        table: type of the table; see `table_type`.
    """

    contributions: Mapping[str, int]
    residual: int
    answers: Sequence[int]
    table: np.dtype


class HostGroup(Protocol):
    """What a worker needs of its host.

    Attributes:
        rank: of this worker.
        ranks: of all workers that the description places on this host, in order, this one included.
            Where there is only this one, none of the methods is called.
        most: the most workers on any host of the job, the same for all workers; it goes into the
            handshake (`Specification.per_host`).
    """

    rank: int
    ranks: tuple[int, ...]
    most: int

    def join(self, plan: HostMemoryPlan) -> bool:
        """Make the shared memory, or take part in the one that is there.

        The table of new memory has zeros only. From now on `alive` is True for this worker's rank.

        Returns:
            Whether this worker takes part. Where it does not, for instance because a process that
            hangs still has its place, it exchanges alone, and calls nothing but `leave`.

        Raises:
            ExchangeError: there is not enough memory, or the other workers' plan is another one.
        """
        ...

    def locked(self) -> AbstractContextManager[np.ndarray]:
        """Give exclusive access to the table while the body of a with statement runs.

        The body gets a zero-dimensional structured array of the type `HostMemoryPlan.table`, to
        read and to change; it is no longer valid after the block. The changes count, all at once,
        when the block ends without an error. The block is short (a copy of `residual` at most), and
        neither waits nor calls any other methods than `alive` and `residual`.
        """
        ...

    def alive(self, rank: int) -> bool:
        """Return whether a process is there that has joined with this rank (of `ranks`).

        It may be another one than the one that has written into the table: nonces tell.
        """
        ...

    def contribution(self, rank: int, vector: str) -> np.ndarray:
        """Return the float32 array for a vector of that worker; always the same memory."""
        ...

    def residual(self, which: int) -> np.ndarray:
        """Return one of the two float32 buffers (0 or 1) for what the host's sum could not express.

        They are zeros at first.
        """
        ...

    def answer(self, server: int) -> np.ndarray:
        """Return the float32 array that a server's answer is copied to."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass until the table may have changed, at most that many seconds."""
        ...

    def moved(self, elements: int) -> None:
        """Note that this worker has gone over that many float32 values in memory.

        It is called after each pass, with what was read and written together; the simulator lets
        time pass for it.
        """
        ...

    def leave(self) -> None:
        """Give the memory up; `alive` is False for this rank from now on. May be called twice."""
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
        ("nonce", "<i8"),  # of the process that has this rank; 0: there has been none
        ("next_round", "<i8"),  # the earliest round that it may take part in next; 0: it takes part in none
        ("contributed", "<i8"),  # the round that its contribution is for; 0: it has made none
        ("vectors", "<i8"),  # which vectors are in it: bit i stands for the i-th of the layout's
        ("commit", message),  # what the servers are to be told about it
        # The group that its contribution is part of:
        ("carrier", "<i4"),  # rank of the carrier; NOBODY
        ("begun", "<i4"),  # 1: the carrier may have sent a commit
        ("carrier_nonce", "<i8"),
        ("members", "<i8", (ranks,)),  # nonce of each member, in the order of `HostGroup.ranks`; 0: is none
        ("sequences", "<i8", (ranks,)),  # sequence number of each member's commit
        ("gathered", "<f8"),  # when the last of them had contributed; seconds of the host's monotonic clock
    ]
    return np.dtype(
        [
            ("workers", worker, (ranks,)),  # in the order of `HostGroup.ranks`
            ("residual", "<i8"),  # how often it has been replaced; modulo 2 the number of the buffer that counts
            # The answer that is, or is being, copied into the shared memory:
            ("round", "<i8"),  # that it ended; 0: none
            ("fetcher", "<i4"),  # rank of the worker that copies it
            ("returned", "<i8"),  # which vectors are in it, as in "vectors"
            ("fetcher_nonce", "<i8"),
            ("complete", "<i4", (servers,)),  # 1: all of that server's arrays are there, 2: they have no room
        ]
    )
