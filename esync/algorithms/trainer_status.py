"""The status of a trainer: how far it is, and who takes part; the real and the simulated one answer alike."""

from . import Algorithm


class TrainerStatus:
    """The status of a trainer, read off its algorithm.

    Attributes:
        algorithm: the algorithm object.
    """

    algorithm: Algorithm

    @property
    def rank(self) -> int:
        """This worker's slot, from 0 (known after `start`)."""
        return self.algorithm.exchange.rank if self.algorithm.exchange is not None else 0

    @property
    def workers(self) -> int:
        """Number of worker slots (known after `start`)."""
        return self.algorithm.exchange.workers if self.algorithm.exchange is not None else 1

    @property
    def round(self) -> int:
        """Rounds completed: exchanges that this worker has taken part in (algorithm "local": iterations)."""
        return self.algorithm.round

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part in the rounds: all of them, unless dead ones are left out (known after `start`)."""
        result = self.algorithm.result
        return result.members if result is not None and result.members else tuple(range(self.workers))

    @property
    def elapsed(self) -> float:
        """Seconds that the run has lasted by the last exchange."""
        return self.algorithm.result.elapsed if self.algorithm.result is not None else 0.0

    @property
    def replacement(self) -> bool:
        """Whether this worker has taken over the slot of a dead one, in a job that runs (known after `start`)."""
        return self.algorithm.exchange is not None and self.algorithm.exchange.replacement

    @property
    def local_iterations(self) -> int:
        """Local iterations of the round under way; right after an exchange, those of the round that it ended."""
        return self.algorithm.local_iterations

    @property
    def exchanged(self) -> bool:
        """Whether the last step ended in an exchange."""
        return self.algorithm.exchanged

    @property
    def abandoned(self) -> bool:
        """Whether the last step left its gradients unused.

        It exchanged at once (ESync with delayed ACK, paper §4.2), or the gradients had overflowed
        (automatic mixed precision where the step is the servers'). The batch may be used again;
        where it is not, nothing but its samples is lost.
        """
        return self.algorithm.abandoned

    @property
    def finished(self) -> bool:
        """Whether the run is over on all workers: a limit is reached, or some worker has called `stop`."""
        return self.algorithm.finished
