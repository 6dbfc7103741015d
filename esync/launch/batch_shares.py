"""Batches and shares of the data in proportion to the devices' speeds.

Batches are those of a description's `batch_by_speed`, of which the samples of an iteration, of all
workers together, stay as many as with equal batches. Shares are those of `--partition SCHEME:speed`.
"""

import argparse
import math
from collections.abc import Sequence

from ..arguments import choose_algorithm
from ..data.partitions import PartitionError, check_workers, needs_speeds, with_speeds
from ..training.worker_setup import multiplies_the_sum
from .description import DescriptionError, WorkerEntry


def batch_sizes(total: int, step_times: Sequence[float]) -> list[int]:
    """Divide the samples of an iteration so that all devices need about equally long.

    Every device gets one sample. The others are divided in proportion to the speeds, rounded down,
    and the samples that are left go one by one to the largest remainders; of equal ones, to the
    first. Iterations are taken to last in proportion to their samples, so that a device with a
    large constant share gets too few.

    Args:
        total: samples of all batches together.
        step_times: seconds of an iteration of each device, all with the same number of samples.

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
        workers: of the description, whose speeds it says.
        options: the flags that all workers have in common.

    Raises:
        DescriptionError: the mode or the optimizer would not weight samples equally, or a speed is
            missing; the message says what to do.
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
    """Return a job's partition, with the devices' speeds as weights where it asks for them.

    Raises:
        DescriptionError: a speed is missing, or there are weights for another number of workers.
    """
    if needs_speeds(spec):
        spec = with_speeds(spec, step_times(workers, f"--partition {spec}"))
    try:
        check_workers(spec, len(workers))
    except PartitionError as error:
        raise DescriptionError(f"train: {error}") from None
    return spec


def step_times(workers: Sequence[WorkerEntry], wanted: str) -> list[float]:
    """Return the seconds of an iteration of each worker, as the description has them.

    Args:
        workers: of the description.
        wanted: what needs them, for the message.

    Raises:
        DescriptionError: a worker has none.
    """
    times = [worker.simulate.step_time or worker.step_time for worker in workers]
    known = [seconds for seconds in times if seconds is not None]
    if len(known) < len(times):
        raise DescriptionError(
            f"workers[{times.index(None)}].simulate.step_time: {wanted} needs the seconds of an iteration of "
            f"each device; esync plan measures them in a description without {wanted}"
        )
    return known
