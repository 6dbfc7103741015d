"""Collectives, which sum over all workers without a server: ring, butterfly, binary blocks, MPI.

`schedules` defines, as plain data, which part of a vector each rank sends to which rank in each
step, and whether received values are added. A `transport` sends contiguous arrays from rank to
rank: `mpi`, or `memory`. `allreduce` executes a schedule over a transport; the simulator evaluates
the same schedules without one. `worker_exchange` is the exchange that algorithms use, and
`autotuner` chooses the fastest collective. May import `base`, `blockwise`, `codecs`, `protocol` and
`weighting`.
"""

from .schedules import Move, Schedule, ScheduleStep, binary_blocks, butterfly, ring

__all__ = ["COLLECTIVES", "LIKE_MPI", "SCHEDULES", "Move", "Schedule", "ScheduleStep", "per_host_refusal"]

#: This project's own collectives, by their names on the command line.
SCHEDULES: dict[str, Schedule] = {"ring": ring, "butterfly": butterfly, "binary-blocks": binary_blocks}
#: The schedule that represents MPI's allreduce in simulations: most libraries use halving and doubling
#: for large vectors.
LIKE_MPI = "butterfly"
#: Values of --collective: the parameter server, SCHEDULES, MPI's allreduce, and the fastest of them.
COLLECTIVES = ("ps", *SCHEDULES, "mpi", "auto")


def per_host_refusal(collective: str) -> str:
    """Return the error message for `per_host` with a collective."""
    return (
        f"per_host: with the collective {collective} every worker takes part in the sum by itself; choose ps, or leave "
        "per_host out of the cluster's description"
    )
