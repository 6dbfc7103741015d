"""Walks a schedule over a transport: the sum over all ranks, in place.

A *fibre* is a generator that yields whenever it has to wait. One process runs several of them at a time, one for each
bucket of a large vector: while one bucket's values are added up, those of the others are on their way.
"""

from collections.abc import Iterator

import numpy as np

from .schedule import Schedule
from .transport import Request, Transport

Fibre = Iterator[None]


def allreduce(schedule: Schedule, values: np.ndarray, transport: Transport, tag: int) -> Fibre:
    """Replace `values` (contiguous, one dimension) by their sum over all ranks; the same bits on all of them.

    Args:
        schedule: who sends what to whom.
        values: of this rank, as many of the same type as on all others.
        transport: to the others.
        tag: of this fibre's messages; those of fibres that run at the same time differ.
    """
    received = np.empty(0, values.dtype)
    for step in schedule(transport.rank, transport.size, values.size):
        arriving: list[tuple[Request, np.ndarray, np.ndarray]] = []
        at = 0
        if step.adds and received.size < (needed := sum(move.size for move in step.receives)):
            received = np.empty(needed, values.dtype)
        for move in step.receives:
            own = values[move.start : move.stop]
            come = received[at : at + move.size] if step.adds else own
            at += move.size
            arriving.append((transport.irecv(come, move.peer, tag), come, own))
        leaving = [transport.isend(values[move.start : move.stop], move.peer, tag) for move in step.sends]
        for request, come, own in arriving:
            while not request.done():
                yield
            if step.adds:
                np.add(own, come, out=own)
        for request in leaving:
            while not request.done():
                yield
