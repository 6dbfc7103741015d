"""`batch_by_speed`: batches by the devices' speeds, divided anew when speeds change."""

import logging
import math
from collections import deque
from collections.abc import Sequence
from statistics import median

from .. import config
from ..exchange import Result
from ..runtime.batch_sizes import EQUAL_ITERATIONS, Division, StepTime, least_seconds
from ..runtime.errors import ExpectedError

log = logging.getLogger(__name__)


class BatchBySpeedError(ExpectedError, ValueError):
    """`batch_by_speed` was asked for where it cannot be followed; the message says why."""


def refusal(mode: str, waits: bool, by_samples: bool) -> str:
    """Return why the workers of a mode cannot have batches by speed, and what to do; "": they can.

    Args:
        mode: its name.
        waits: whether rounds wait for the slowest worker.
        by_samples: whether workers can be weighted by their samples.
    """
    if not waits:
        return (
            f"in mode {mode} no worker waits for slower ones in every iteration; leave it out, or choose mode sync, "
            "local-sgd or esync"
        )
    return "" if by_samples else f"mode {mode} does not weight workers by samples; leave it out, or choose mode sync"


class BatchDivision:
    """Chooses the batch size of this worker from the times of all.

    With each exchange every worker sends the others how many times its described time its newest
    iterations have taken (the median of `config.BATCH_WINDOW`), and the value that the present sizes
    go by. All workers receive the same numbers with the same exchange, and so divide alike: anew,
    where the slowest iteration would become shorter by more than `config.BATCH_GAIN`, and, where the
    sizes do not add up to a fixed number, where one of them would change by more than that. With
    --elastic, the members of a round divide what equal batches of theirs would have.

    A worker that begins in a running job may have another size in its first round than the others
    expect. A mean that is weighted by samples is that of all samples all the same.

    Args:
        times: described step times of all devices, by rank.
        rank: of this worker.
        workers: number of workers.
        division: chooses the sizes.

    Attributes:
        equal_size: samples of equal batches; None: the program has not asked yet.

    Raises:
        BatchBySpeedError: there are more or fewer times than workers.
    """

    def __init__(
        self, times: Sequence[StepTime], rank: int, workers: int, division: Division = EQUAL_ITERATIONS
    ) -> None:
        if len(times) != workers:
            raise BatchBySpeedError(
                f"batch_by_speed: there are step times of {len(times)} devices, but {workers} workers"
            )
        self._times, self._rank, self._division = times, rank, division
        self._members: tuple[int, ...] = tuple(range(len(times)))
        self._factors = [1.0] * len(times)  # that the present sizes go by
        self._ratios: deque[float] = deque(maxlen=config.BATCH_WINDOW)
        self.equal_size: int | None = None
        self._sizes: list[int] = []
        self._share = 1.0

    @staticmethod
    def scalars_of(workers: int) -> dict[str, str]:
        """Return the name of each scalar that exchanges carry → how it is combined; one worker sends it."""
        ranks = range(workers) if workers <= config.BATCH_WORKERS else ()
        return {name: "maximum" for rank in ranks for name in _names(rank)}

    def size(self, batch_size: int) -> int:
        """Return the samples of this worker's next batch where equal batches would have `batch_size`."""
        if self.equal_size != batch_size or not self._sizes:
            self.equal_size = batch_size
            self._sizes = self._divided(self._factors)
        return self._sizes[self._members.index(self._rank)]

    def begin(self, samples: int) -> float:
        """Note the samples of the batch of an iteration that begins.

        Returns:
            How many times as long the iteration should take as one with an equal batch.

        Raises:
            BatchBySpeedError: the program has never asked for its batch size.
        """
        if self.equal_size is None:
            raise BatchBySpeedError(
                "batch_by_speed: this program has not asked for the size of its batches, so that they would be equal: "
                "call trainer.batch_size(SIZE) before each batch, or give the DataLoader "
                "batch_sampler=esync.BatchSampler(SAMPLER, SIZE, trainer)"
            )
        self._share = samples / self.equal_size
        time = self._times[self._rank]
        return time.at(self._share) / time.step_time

    def end(self, seconds: float) -> None:
        """Note the seconds that the iteration has taken."""
        self._ratios.append(seconds / self._times[self._rank].at(self._share))

    def scalars(self) -> dict[str, float]:
        """Return the values that this worker sends with the exchange that begins, by name."""
        if len(self._times) > config.BATCH_WORKERS:
            return {}
        measured, used = _names(self._rank)
        values = {used: self._factors[self._rank]}
        return {**values, measured: median(self._ratios)} if len(self._ratios) == config.BATCH_WINDOW else values

    def follow(self, result: Result, participated: bool = True) -> None:
        """Divide the batches anew after an exchange, where that is worth it.

        Args:
            result: of the exchange.
            participated: whether it was this worker's; else it is the one that has brought the common
                model to a worker that begins.
        """
        scalars = result.scalars
        members = tuple(sorted({*(result.members or range(len(self._times))), self._rank}))
        used = [scalars.get(_names(rank)[1], factor) for rank, factor in enumerate(self._factors)]
        if members != self._members or used != self._factors:  # with a worker that has just begun
            self._members, self._factors, self._sizes = members, used, []
        if not participated:
            return
        measured = {rank: scalars.get(_names(rank)[0], math.nan) for rank in members}
        if any(map(math.isnan, measured.values())) or self.equal_size is None:
            return
        factors = [measured.get(rank, factor) for rank, factor in enumerate(self._factors)]
        present = self._sizes = self._sizes or self._divided(self._factors)
        seconds, gain = self._slowest(present, factors), 1 + config.BATCH_GAIN
        by_samples = self._division.by_samples
        if by_samples and seconds <= gain * least_seconds(self._slowed(factors)):  # the usual case, without dividing
            return
        divided = self._divided(factors)
        changes = any(
            abs(new - old) > max(1, config.BATCH_GAIN * old) for new, old in zip(divided, present, strict=True)
        )
        if seconds > gain * self._slowest(divided, factors) or (changes and not by_samples):
            self._factors, self._sizes = factors, divided
            self._ratios.clear()
            if self._rank == members[0]:
                log.info("batches by speed: %s samples after round %d", ", ".join(map(str, divided)), result.round)

    def _slowed(self, factors: Sequence[float]) -> list[StepTime]:
        """Return the members' step times, slowed by these factors."""
        times = [(self._times[rank], factors[rank]) for rank in self._members]
        return [StepTime(time.step_time * factor, time.fixed_time * factor) for time, factor in times]

    def _divided(self, factors: Sequence[float]) -> list[int]:
        assert self.equal_size is not None
        return self._division.sizes(self.equal_size, self._slowed(factors))

    def _slowest(self, sizes: Sequence[int], factors: Sequence[float]) -> float:
        """Return the seconds of the slowest member's iteration."""
        assert self.equal_size is not None
        times = self._slowed(factors)
        return max(time.at(size / self.equal_size) for time, size in zip(times, sizes, strict=True))


def _names(rank: int) -> tuple[str, str]:
    return f"measured slowdown of worker {rank}", f"used slowdown of worker {rank}"
