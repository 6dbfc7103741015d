"""The status of a trainer, real or simulated: its progress, and the members of the run."""

from .algorithms import Algorithm


class TrainerStatus:
    """The status of a trainer, read off its algorithm.

    Attributes:
        dataset_size: samples of the whole training set, or None.
    """

    _algorithm: Algorithm
    dataset_size: int | None

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm object; to change the algorithm, make another trainer."""
        return self._algorithm

    @property
    def rank(self) -> int:
        """This worker's slot, from 0 (known after `start`)."""
        return self.algorithm.exchange.rank if self.algorithm.exchange is not None else 0

    @property
    def workers(self) -> int:
        """Number of worker slots (known after `start`)."""
        return self.algorithm.exchange.workers if self.algorithm.exchange is not None else 1

    def batch_size(self, batch_size: int) -> int:
        """Return the number of samples that this worker's next batch should have.

        With `batch_by_speed` (docs/how-to/launch.md) it is in proportion to the speed of the device,
        and may change after every exchange; call it before each batch. Elsewhere it is `batch_size`.

        Args:
            batch_size: samples in a batch of each worker if all batches are equal; a whole number, 1 or more.
        """
        division = self.algorithm.batches
        return batch_size if division is None else division.size(batch_size)

    @property
    def round(self) -> int:
        """Rounds of the run, as of the last exchange.

        In asynchronous modes they are the commits of all workers ÷ workers, rounded down; with
        algorithm "local", iterations.
        """
        return self.algorithm.round

    @property
    def exchanges(self) -> int:
        """Exchanges of this worker, by which its log files `iter-N.txt` are numbered.

        In modes with rounds it is the number of the newest round that the worker has taken part in.
        """
        return self.algorithm.exchange_count

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part in the rounds (known after `start`).

        These are all ranks, unless dead workers are left out.
        """
        return self.algorithm.result.members or tuple(range(self.workers))

    @property
    def resting(self) -> tuple[int, ...]:
        """The ranks that are left out, and send nothing, as of the last exchange (mode tiered)."""
        return self.algorithm.result.resting

    @property
    def samples(self) -> int:
        """Training samples of all workers that are in the common model, as of the last exchange.

        In synchronous modes all workers have the same number after the same round. In asynchronous
        ones it is what the servers had counted when they answered this worker last.
        """
        return self.algorithm.result.samples

    @property
    def epoch(self) -> float:
        """Epochs that all workers together have done by the last exchange: samples ÷ dataset_size.

        Raises:
            ValueError: the size of the training set is not known.
        """
        if self.dataset_size is None:
            raise ValueError(
                "trainer.epoch needs the size of the training set: esync.Trainer(…, dataset_size=len(dataset))"
            )
        return self.samples / self.dataset_size

    @property
    def elapsed(self) -> float:
        """Seconds that the run has lasted by the last exchange."""
        return self.algorithm.result.elapsed

    @property
    def replacement(self) -> bool:
        """Whether this worker has taken a dead one's slot in a running job (after `start`)."""
        return self.algorithm.exchange is not None and self.algorithm.exchange.replacement

    @property
    def local_iterations(self) -> int:
        """Local iterations of the round under way.

        Right after an exchange they are those of the round that it has ended.
        """
        return self.algorithm.iterations

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
        """Whether the run is over on all workers.

        That is so when a limit is reached, or when some worker has called `stop`.
        """
        return self.algorithm.finished
