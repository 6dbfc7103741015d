"""Collectives, which sum over all workers without a server: ring, butterfly, binary blocks, MPI.

`schedules` says, as plain data, which part of a vector each rank sends to whom in which step, and
what it does with what it receives. A `transport` carries contiguous arrays from rank to rank:
`mpi`, or `memory`. `allreduce` walks a schedule over a transport; the model of `cost` and the
simulator walk the same schedules without one. `worker_exchange` is the exchange that algorithms
see; `autotuner` chooses the fastest collective. May import `base`, `blockwise`, `codecs`,
`protocol` and `weighting`.
"""

from .schedules import Move, Schedule, ScheduleStep, binary_blocks, butterfly, ring

__all__ = ["COLLECTIVES", "SCHEDULES", "Move", "Schedule", "ScheduleStep", "per_host_refusal"]

#: This project's own collectives, by their names on the command line.
SCHEDULES: dict[str, Schedule] = {"ring": ring, "butterfly": butterfly, "binary-blocks": binary_blocks}
#: Values of --collective: the parameter server, those, MPI's own, and the choice of the fastest.
COLLECTIVES = ("ps", *SCHEDULES, "mpi", "auto")


def per_host_refusal(collective: str) -> str:
    """Return the message by which `per_host` is refused with a collective."""
    return (
        f"per_host: with the collective {collective} every worker takes part in the sum by itself; choose ps, or leave "
        "per_host out of the cluster's description"
    )
