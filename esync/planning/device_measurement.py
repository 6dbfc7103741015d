"""Measure how long iterations take on every device, while all devices compute at the same time."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .. import config
from ..exchange import STATISTICS, WEIGHTS
from ..launch.spec import ProcessSpec
from ..runtime.iteration_statistics import IterationStatistics
from .measuring_processes import MeasuringProcesses

#: Iterations that every device should have done, at least.
LEAST_ITERATIONS = 4


@dataclass(frozen=True)
class DeviceFigures:
    """What is known of a device after it has trained for a while.

    Attributes:
        step_time: mean seconds of an iteration.
        jitter: its relative standard deviation.
        batch_size: training samples of an iteration.
        iterations: how many of them were measured.
        vectors: name of each vector of the model → number of its values.
    """

    step_time: float
    jitter: float
    batch_size: float
    iterations: int
    vectors: Mapping[str, int]

    @property
    def model_bytes(self) -> int:
        """Bytes of the model's weights and statistics, which are exchanged as float32."""
        return 4 * (self.vectors[WEIGHTS] + self.vectors[STATISTICS])


@dataclass(frozen=True)
class MeasuringTime:
    """How long devices are measured, in seconds.

    Attributes:
        least: from the moment when all of them compute.
        most: likewise, where a device takes long for its iterations.
        start: that a device has to begin.
    """

    least: float = config.MEASURE_DEVICES
    most: float = config.MEASURE_DEVICES_MOST
    start: float = config.MEASURE_START


def measure_devices(
    specs: Sequence[ProcessSpec], logs: Path, notify: Callable[[str], None], limits: MeasuringTime
) -> tuple[dict[str, DeviceFigures], dict[str, str]]:
    """Return the figures of each device, by the name of its worker, and why others have none.

    Iterations count from the moment when all devices compute: those of one host share its
    processor, as they will when they train.

    Args:
        specs: the workers, each of which trains alone (`launch.plan.plan_measurement`).
        logs: folder for their output.
        notify: tells the user something.
        limits: how long to measure.
    """
    figures: dict[str, DeviceFigures] = {}
    problems: dict[str, str] = {}
    if not specs:
        return figures, problems
    where = {spec.name: spec.where for spec in specs}
    announced = time.monotonic()
    notify(f"devices: starting {', '.join(where.values())}")
    with MeasuringProcesses(specs, logs, notify) as processes:

        def left() -> list[str]:
            """Return the devices that may still be measured, and note the problems of others."""
            for name in where:
                if name not in problems and (why := processes.failure(name)):
                    problems[name] = why
                    notify(f"devices: {where[name]} ({name}) {why}")
            return [name for name in where if name not in problems]

        def announce(text: str) -> None:
            nonlocal announced
            if time.monotonic() - announced >= config.MEASURE_ANNOUNCE:
                announced = time.monotonic()
                notify(text)

        begun = time.monotonic()
        while silent := [name for name in left() if processes.report(name) is None]:
            waited = time.monotonic() - begun
            if waited > limits.start:
                for name in silent:
                    problems[name] = f"has not done its first iterations within {limits.start:.0f} s"
                    notify(f"devices: {where[name]} ({name}) {problems[name]}")
                break
            announce(f"devices: waiting for {', '.join(map(where.__getitem__, silent))} to train ({waited:.0f} s)")
            processes.turn()
        begun = announced = time.monotonic()
        first = {name: _statistics(processes.report(name)) for name in left()}
        if first:
            notify(f"devices: measuring {', '.join(map(where.__getitem__, first))} for at least {limits.least:.0f} s")
        while measured := {name: _since(processes.report(name), first[name]) for name in left()}:
            lasted = time.monotonic() - begun
            enough = all(
                each.iterations >= LEAST_ITERATIONS or not processes.started[name].running
                for name, each in measured.items()
            )
            if lasted >= limits.most or (lasted >= limits.least and enough):
                break
            announce(f"devices: measuring, {lasted:.0f} s ({', '.join(_counts(measured, where))})")
            processes.turn()
        for name, statistics in measured.items():
            if statistics.iterations == 0:  # a program that has come to its end before the others began
                statistics = first[name]
            vectors = processes.report(name)["vectors"]  # type: ignore[index]
            figures[name] = DeviceFigures(
                statistics.mean, statistics.jitter, statistics.batch, statistics.iterations, vectors
            )
            notify(
                f"devices: {where[name]} takes {1e3 * statistics.mean:.1f} ms an iteration "
                f"(± {statistics.jitter:.1%}, {statistics.iterations} iterations)"
            )
    return figures, problems


def _statistics(report: Mapping[str, Any] | None) -> IterationStatistics:
    """Return the statistics that a process has reported."""
    assert report is not None
    return IterationStatistics(**{field.name: report[field.name] for field in fields(IterationStatistics)})


def _since(report: Mapping[str, Any] | None, first: IterationStatistics) -> IterationStatistics:
    return _statistics(report) - first


def _counts(measured: Mapping[str, IterationStatistics], where: Mapping[str, str]) -> list[str]:
    return [f"{where[name]}: {each.iterations} iterations" for name, each in measured.items()]
