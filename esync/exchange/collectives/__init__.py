"""Sums over all workers without a server: ring, butterfly, binary blocks, MPI's own, and the choice between them.

Three layers. A *schedule* (`ring`, `butterfly`, `binary_blocks`) says, as plain data, which part of a vector each rank
sends to whom in which step, and what it does with what it receives. A *transport* (`transport.Transport`) carries
contiguous arrays from rank to rank: MPI (`mpi`), or memory (`memory`). `allreduce` walks a schedule over a transport;
the cost model and the simulator walk the same schedules without one.
"""

from .binary_blocks import binary_blocks
from .butterfly import butterfly
from .ring import ring
from .schedule import Move, Schedule, Step

__all__ = ["COLLECTIVES", "SCHEDULES", "Move", "Schedule", "Step"]

#: This project's own ones, by their names on the command line.
SCHEDULES: dict[str, Schedule] = {"ring": ring, "butterfly": butterfly, "binary-blocks": binary_blocks}
#: What --collective takes: the parameter server, those, MPI's own, and the choice of the fastest.
COLLECTIVES = ("ps", *SCHEDULES, "mpi", "auto")
