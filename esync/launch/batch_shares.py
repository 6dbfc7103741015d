"""Batches and shares of the data in proportion to the devices' speeds.

Batches follow `batch_by_speed` in a description (`algorithms.batch_division`). Shares follow
`--partition SCHEME:speed`.
"""

import argparse
from collections.abc import Sequence

from ..arguments import choose_algorithm, presets
from ..data.partitions import PartitionError, check_workers, needs_speeds, with_speeds
from ..runtime.batch_sizes import StepTime
from .description import Description, DescriptionError, WorkerEntry


def described_times(workers: Sequence[WorkerEntry]) -> tuple[StepTime, ...]:
    """Return the step time of each worker, by which batches are divided.

    Raises:
        DescriptionError: a worker has none, or its `fixed_time` is not shorter.
    """
    times = []
    for number, (worker, seconds) in enumerate(zip(workers, step_times(workers, "batch_by_speed"), strict=True)):
        times.append(StepTime(seconds, worker.simulate.fixed_time or 0.0))
        if times[-1].fixed_time >= seconds:
            raise DescriptionError(
                f"workers[{number}].simulate.fixed_time: {times[-1].fixed_time:g} s should be less than the step_time "
                f"that it is a part of, {seconds:g} s"
            )
    return tuple(times)


def divides_by_speed(description: Description, options: argparse.Namespace, program: bool) -> tuple[bool, str]:
    """Return whether batches follow the speeds, and a remark if they do not although the preset has them do so.

    The description decides; if it says nothing, the preset does.

    Args:
        description: of the cluster.
        options: flags of the workers.
        program: whether they run a user's program, which may not ask for the size of its batches.
    """
    if description.batch_by_speed is not None:
        return description.batch_by_speed, ""
    preset = presets.PRESETS.get(options.preset or "")
    if preset is None or not preset.batch_by_speed or options.mode != preset.settings["mode"]:
        return False, ""
    if program:
        return False, "batches are equal: a program that asks for their size may have batch_by_speed: true"
    if not choose_algorithm(options).asks_state_server:
        return False, "batches are equal: with --local-iterations fast workers do not do more of them than slow ones"
    if None in _described(description.workers):
        return False, "batches are equal: the description has no step times, which esync plan measures"
    return True, ""


def check_batch_by_speed(options: argparse.Namespace) -> None:
    """Check that a job's mode can have batches by speed.

    Raises:
        DescriptionError: it cannot; the message says why.
    """
    if why := choose_algorithm(options).prevents_batch_by_speed:
        raise DescriptionError(f"batch_by_speed: {why}")


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
    times = _described(workers)
    known_times = [seconds for seconds in times if seconds is not None]
    if len(known_times) < len(times):
        raise DescriptionError(
            f"workers[{times.index(None)}].simulate.step_time: {feature} needs the seconds of an iteration of "
            f"each device; esync plan measures them in a description without {feature}"
        )
    return known_times


def _described(workers: Sequence[WorkerEntry]) -> list[float | None]:
    """Return the seconds per iteration of each worker; None where the description has none."""
    return [worker.simulate.step_time or worker.step_time for worker in workers]
