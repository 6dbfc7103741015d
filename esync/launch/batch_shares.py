"""Batches and shares of the data in proportion to the devices' speeds.

Batches follow `batch_by_speed` in a description, which keeps the number of samples per iteration of
all workers together. Shares follow `--partition SCHEME:speed`.
"""

import argparse
import math
from collections.abc import Sequence

from ..arguments import choose_algorithm
from ..data.partitions import PartitionError, check_workers, needs_speeds, with_speeds
from ..training.worker_setup import multiplies_the_sum
from .description import DescriptionError, WorkerEntry


def batch_sizes(total: int, step_times: Sequence[float]) -> list[int]:
    """Divide the samples of an iteration so that all devices take about equally long.

    Every device gets one sample. The remaining ones are divided in proportion to the speeds, rounded
    down, and the samples left over are assigned one by one to the largest remainders (of equal ones,
    to the first). The time of an iteration is assumed to be proportional to its samples, so a device
    with a large constant overhead gets too few.

    Args:
        total: number of samples in all batches together.
        step_times: seconds per iteration of each device, all with the same number of samples.

    Returns:
        Samples of each device's batch, 1 at least; their sum is `total`.

    Raises:
        ValueError: there are more devices than samples.
    """
    if total < len(step_times):
        raise ValueError(f"{total} samples cannot be divided among {len(step_times)} devices")
    speeds = [1 / seconds for seconds in step_times]
    rest = total - len(speeds)
    exact = [rest * speed / math.fsum(speeds) for speed in speeds]
    sizes = [1 + math.floor(share) for share in exact]
    order = sorted(range(len(sizes)), key=lambda index: math.floor(exact[index]) - exact[index])
    for index in order[: total - sum(sizes)]:
        sizes[index] += 1
    return sizes


def divided(workers: Sequence[WorkerEntry], options: argparse.Namespace) -> list[int]:
    """Return the batch size of each worker of a job.

    Args:
        workers: workers of the description, with their step times.
        options: flags that all workers have in common.

    Raises:
        DescriptionError: the mode or the optimizer would not weight samples equally, or a step time
            is missing; the message says what to do.
    """
    algorithm = choose_algorithm(options)
    if not algorithm.synchronous or not algorithm.equal_updates:
        raise DescriptionError(
            f"batch_by_speed: in mode {options.mode} no worker waits for slower ones in every iteration; leave it out, "
            "or choose mode sync, or local-sgd"
        )
    if not multiplies_the_sum(options):
        raise DescriptionError(
            f"batch_by_speed: --optimizer {options.optimizer} takes the mean gradient of each batch, so that samples "
            "of small batches would count more; use sgd or nag"
        )
    return batch_sizes(options.batch_size * len(workers), step_times(workers, "batch_by_speed"))


def partition_of(spec: str, workers: Sequence[WorkerEntry]) -> str:
    """Return the partition of a job, with the devices' speeds filled in as weights if it uses them.

    Raises:
        DescriptionError: a step time is missing, or the number of weights is not that of workers.
    """
    if needs_speeds(spec):
        spec = with_speeds(spec, step_times(workers, f"--partition {spec}"))
    try:
        check_workers(spec, len(workers))
    except PartitionError as error:
        raise DescriptionError(f"train: {error}") from None
    return spec


def step_times(workers: Sequence[WorkerEntry], feature: str) -> list[float]:
    """Return the seconds per iteration of each worker, as given in the description.

    Args:
        workers: workers of the description.
        feature: name of what needs the step times, for the message.

    Raises:
        DescriptionError: a worker has none.
    """
    times = [worker.simulate.step_time or worker.step_time for worker in workers]
    known_times = [seconds for seconds in times if seconds is not None]
    if len(known_times) < len(times):
        raise DescriptionError(
            f"workers[{times.index(None)}].simulate.step_time: {feature} needs the seconds of an iteration of "
            f"each device; esync plan measures them in a description without {feature}"
        )
    return known_times
