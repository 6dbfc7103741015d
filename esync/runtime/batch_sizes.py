"""Batches by the devices' speeds: how long a step takes, and how many samples each device's batch has."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import config


@dataclass(frozen=True)
class StepTime:
    """Seconds of an iteration on one device, as a linear function of its batch size.

    Attributes:
        step_time: seconds with the batch size that all devices would have.
        fixed_time: the part of them that does not depend on the batch size.
    """

    step_time: float
    fixed_time: float = 0.0

    def at(self, share: float) -> float:
        """Return the seconds with `share` times that batch size."""
        return self.fixed_time + (self.step_time - self.fixed_time) * share

    @classmethod
    def parse(cls, text: str) -> "StepTime":
        """Read what `str` returns; ValueError where it is something else."""
        seconds = cls(*map(float, text.split("+")))
        if not 0 <= seconds.fixed_time < seconds.step_time < math.inf:
            raise ValueError(text)
        return seconds

    def __str__(self) -> str:
        return f"{self.step_time!r}+{self.fixed_time!r}"


@dataclass(frozen=True)
class Division:
    """How batches follow the devices' speeds.

    Attributes:
        sizes: (samples of equal batches, times of all devices) → samples of each device's batch.
        by_samples: whether all iterations take equally long, their sizes add up to those of equal
            batches, and the workers are weighted by their samples. Otherwise they are as the mode
            weights them.
    """

    sizes: Callable[[int, Sequence[StepTime]], list[int]]
    by_samples: bool


def least_seconds(times: Sequence[StepTime]) -> float:
    """Return a lower bound of the seconds of the slowest device's iteration, whatever the batches.

    If batches need not be whole, all devices can finish after T seconds: Σ (T − f_i) ÷ (t_i − f_i) is
    their number, since shares of equal batches add up to it.
    """
    rates = [1 / (time.step_time - time.fixed_time) for time in times]
    fixed = sum(rate * time.fixed_time for rate, time in zip(rates, times, strict=True))
    return (len(times) + fixed) / sum(rates)


def batch_sizes(batch_size: int, times: Sequence[StepTime]) -> list[int]:
    """Divide the samples of an iteration so that the slowest device finishes as early as possible.

    Every device gets one sample, and each further one goes to the device that takes least time with
    it (of equal ones, to the first), which is optimal because times grow with batches.

    Args:
        batch_size: samples in each of equal batches, 1 or more, to which the times refer.
        times: of all devices.

    Returns:
        Samples of each device's batch, 1 at least; their sum is that of equal batches.
    """
    sizes = [1] * len(times)
    queue = [(time.at(2 / batch_size), index) for index, time in enumerate(times)]
    heapq.heapify(queue)
    for _ in range((batch_size - 1) * len(times)):
        _, index = queue[0]
        sizes[index] += 1
        heapq.heapreplace(queue, (times[index].at((sizes[index] + 1) / batch_size), index))
    return sizes


def batch_sizes_of_a_round(batch_size: int, times: Sequence[StepTime]) -> list[int]:
    """Reduce the batches of devices whose iteration is longer than a round, in modes whose fast devices do several.

    A round is as long as config.ROUND_ITERATIONS iterations of the fastest device, and at least twice
    as long as what an iteration of any device takes whatever its batch.

    Args:
        batch_size: samples in each of equal batches, 1 or more, to which the times refer.
        times: of all devices.

    Returns:
        Samples of each device's batch, from 1 to `batch_size`.
    """
    fastest, fixed = min(time.step_time for time in times), max(time.fixed_time for time in times)
    round_time = max(config.ROUND_ITERATIONS * fastest, 2 * fixed)
    shares = [(round_time - time.fixed_time) / (time.step_time - time.fixed_time) for time in times]
    return [max(1, math.floor(batch_size * min(1.0, share))) for share in shares]


#: Of modes in which each device does one iteration at a time.
EQUAL_ITERATIONS = Division(batch_sizes, by_samples=True)
#: Of modes whose fast devices do several.
EQUAL_ROUNDS = Division(batch_sizes_of_a_round, by_samples=False)
