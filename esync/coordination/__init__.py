"""When does a worker of ESync exchange? The seam between the algorithm and whoever decides.

`coordinator` holds the decision itself, in plain Python; `client` asks a state server for it over HTTP. Nothing in
this package needs MXNet or Django.
"""

from typing import Protocol

from ..handles import Handle


class Coordination(Protocol):
    """What the ESync algorithm knows of the state server: one worker's view (paper, Algorithm 1).

    An implementation knows the worker's rank and keeps the round, which starts at 1 and follows `reset`.
    """

    round: int

    def init(self, num_workers: int, epsilon: float, slowest_iterations: int = 1) -> None:
        """Begin a training with `num_workers` workers (rank 0 only, before any worker asks).

        `epsilon` is in seconds; `slowest_iterations` is how many iterations the slowest worker does in each round.
        """
        ...

    def ask(self, iteration: int, capability: float) -> Handle[bool]:
        """Ask before a local iteration whether to exchange instead: the result is True for READY.

        Args:
            iteration: local iterations done in this round; 0 never gets READY.
            capability: seconds that the newest iteration took, waiting left out and *not* smoothed (the coordinator
                smooths); 0 while it is not known.
        """
        ...

    def reset(self, round: int) -> None:
        """Report that this worker holds the model of the next round, `round`, and begins it."""
        ...
