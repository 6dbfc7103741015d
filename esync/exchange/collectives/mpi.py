"""MPI as the transport, through mpi4py, and MPI's allreduce."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ... import config
from ...runtime.errors import ExpectedError
from .transport import Coroutine, until_done


class MPIMissingError(ExpectedError, ImportError):
    """MPI is not available; the message says how to install it."""


def load() -> Any:
    """Return the module mpi4py.MPI, with MPI initialized for one thread at a time.

    MPI is finalized only by `MPITransport.close`.
    """
    try:
        import mpi4py

        mpi4py.rc.thread_level = "serialized"
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MPIMissingError(
            f"collectives need MPI, which cannot be used here ({error}): pip install 'esync[mpi]' brings mpi4py and "
            "MPICH; or choose --collective ps"
        ) from None
    return MPI


class MPITransport:
    """One rank of MPI's world; see `transport.Transport`.

    Attributes:
        crowded: see `transport.Transport`.
        sent: bytes passed to MPI to send.
        received: bytes requested from MPI.
    """

    def __init__(self) -> None:
        self._mpi = load()
        self._world = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        host = self._world.Split_type(self._mpi.COMM_TYPE_SHARED)
        cores = set().union(*host.allgather(os.sched_getaffinity(0)))  # each rank may be bound to some of its own
        self.crowded = bool(self._world.allreduce(host.Get_size() > len(cores), self._mpi.LOR))
        host.Free()
        self.sent = self.received = 0

    def isend(self, values: np.ndarray, to: int, tag: int) -> "MPIRequest":
        """See `transport.Transport`."""
        self.sent += values.nbytes
        return self._request(self._world.Isend([piece, self._mpi.BYTE], to, tag) for piece in _pieces(values))

    def irecv(self, values: np.ndarray, source: int, tag: int) -> "MPIRequest":
        """See `transport.Transport`."""
        self.received += values.nbytes
        return self._request(self._world.Irecv([piece, self._mpi.BYTE], source, tag) for piece in _pieces(values))

    def native_allreduce(self, values: np.ndarray) -> Coroutine:
        """Sum `values` by MPI's allreduce, in place.

        All ranks have to start such sums in the same order; they get the same bits (MPI standard,
        6.9.6).
        """
        if not values.size:
            return
        share = round(2 * values.nbytes * (self.size - 1) / self.size)  # a lower bound; MPI does not report the number
        self.sent += share
        self.received += share
        yield from until_done(self._request([self._world.Iallreduce(self._mpi.IN_PLACE, values)]))

    def _request(self, parts: Iterable[Any]) -> "MPIRequest":
        return MPIRequest(self._mpi.Request.Testall, list(parts))

    def close(self) -> None:
        """Finalize MPI, together with all ranks; else mpiexec considers the end of a process a crash."""
        self._world.Free()
        self._mpi.Finalize()
        _notify_process_manager()


class MPIRequest:
    """See `transport.Request`.

    Args:
        test_all: returns whether all of some requests of MPI are complete.
        requests: these.
    """

    def __init__(self, test_all: Callable[[list[Any]], bool], requests: list[Any]) -> None:
        self._test_all, self._requests = test_all, requests

    def done(self) -> bool:
        """Let MPI make progress, and return whether the transfer is over."""
        return self._test_all(self._requests)


def _pieces(values: np.ndarray) -> list[np.ndarray]:
    """Cut an array into messages: MPICH sends two large ones between two ranks, one each way, one after the other."""
    step = config.COLLECTIVE_MESSAGE // values.itemsize
    return [values[start : start + step] for start in range(0, values.size, step)]


def _notify_process_manager() -> None:
    """Notify MPICH's mpiexec that MPI is finalized (PMI-1, "finalize").

    MPICH does so only in an exit handler of C. Programs of this package exit without them, because
    those of MXNet wait for processes that may be gone. If they run nevertheless, MPICH finds a
    socket with the answer already in it, in place of that to mpiexec, which is closed by then.
    """
    number = os.environ.get("PMI_FD", "")
    if not number.isdecimal():
        return
    with contextlib.suppress(OSError):
        os.write(int(number), b"cmd=finalize\n")
        answer = os.read(int(number), 1024)
        ours, theirs = socket.socketpair()
        ours.send(answer)
        os.dup2(theirs.fileno(), int(number))
        theirs.close()
        ours.detach()  # stays open as long as the process


def started_by_mpi() -> bool:
    """Return whether MPI has started this process."""
    return any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "PMI_ID", "OMPI_COMM_WORLD_RANK"))
