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

#: Smallest number of iterations to measure on each device.
MIN_ITERATIONS = 4
#: Largest share of an iteration that is taken for independent of the batch size.
MAX_FIXED_SHARE = 0.95


@dataclass(frozen=True)
class DeviceFigures:
    """The figures of a device after it has trained for a while.

    Attributes:
        step_time: mean seconds per iteration.
        jitter: relative standard deviation of an iteration.
        batch_size: training samples per iteration.
        iterations: number of measured iterations.
        vectors: name of each vector of the model → number of its values.
        fixed_time: the part of step_time that does not depend on the batch size; None if the program
            has batches of one size only.
    """

    step_time: float
    jitter: float
    batch_size: float
    iterations: int
    vectors: Mapping[str, int]
    fixed_time: float | None = None

    @property
    def model_bytes(self) -> int:
        """Bytes of the model's weights and statistics, which are exchanged as float32."""
        return 4 * (self.vectors[WEIGHTS] + self.vectors[STATISTICS])


def measure_devices(
    specs: Sequence[ProcessSpec], logs: Path, notify: Callable[[str], None]
) -> tuple[dict[str, DeviceFigures], dict[str, str]]:
    """Return the figures of each device, by the name of its worker, and why others have none.

    Iterations are measured from the moment when all devices compute, because the devices of one host
    share its processor, as in a training.

    Args:
        specs: the workers, each of which trains alone (`launch.plan.plan_measurement`).
        logs: folder for their output.
        notify: tells the user something.
    """
    figures: dict[str, DeviceFigures] = {}
    problems: dict[str, str] = {}
    if not specs:
        return figures, problems
    locations = {spec.name: spec.where for spec in specs}
    announced = time.monotonic()
    notify(f"devices: starting {', '.join(locations.values())}")
    with MeasuringProcesses(specs, logs, notify) as processes:

        def remaining() -> list[str]:
            """Return the workers that may still be measured; record the problems of the others."""
            for name in locations:
                if name not in problems and (reason := processes.failure(name)):
                    problems[name] = reason
                    notify(f"devices: {locations[name]} ({name}) {reason}")
            return [name for name in locations if name not in problems]

        def announce(text: str) -> None:
            nonlocal announced
            if time.monotonic() - announced >= config.MEASURE_ANNOUNCE:
                announced = time.monotonic()
                notify(text)

        begun = time.monotonic()
        while silent := [name for name in remaining() if processes.report(name) is None]:
            waited = time.monotonic() - begun
            if waited > config.MEASURE_START:
                for name in silent:
                    problems[name] = f"has not done its first iterations within {config.MEASURE_START:.0f} s"
                    notify(f"devices: {locations[name]} ({name}) {problems[name]}")
                break
            announce(f"devices: waiting for {', '.join(map(locations.__getitem__, silent))} to train ({waited:.0f} s)")
            processes.turn()
        begun = announced = time.monotonic()
        first = {name: _BatchTimes.of(processes.report(name)) for name in remaining()}
        if first:
            names = ", ".join(map(locations.__getitem__, first))
            notify(f"devices: measuring {names} for at least {config.MEASURE_DEVICES:.0f} s")
        while measured := {name: _BatchTimes.of(processes.report(name)).since(first[name]) for name in remaining()}:
            lasted = time.monotonic() - begun
            enough = all(
                times.full.iterations >= MIN_ITERATIONS or not processes.started[name].running
                for name, times in measured.items()
            )
            if lasted >= config.MEASURE_DEVICES_MAX or (lasted >= config.MEASURE_DEVICES and enough):
                break
            counts = (f"{locations[name]}: {times.full.iterations} iterations" for name, times in measured.items())
            announce(f"devices: measuring, {lasted:.0f} s ({', '.join(counts)})")
            processes.turn()
        for name, times in measured.items():
            if times.full.iterations == 0:  # a program that has ended before the others began
                times = first[name]
            full, fixed = times.full, times.fixed_time
            vectors = processes.report(name)["vectors"]  # type: ignore[index]
            figures[name] = DeviceFigures(full.mean, full.jitter, full.batch, full.iterations, vectors, fixed)
            independent = f"; {1e3 * fixed:.1f} ms of it do not depend on the batch size" if fixed else ""
            notify(
                f"devices: {locations[name]} takes {1e3 * full.mean:.1f} ms an iteration "
                f"(± {full.jitter:.1%}, {full.iterations} iterations{independent})"
            )
    return figures, problems


@dataclass(frozen=True)
class _BatchTimes:
    """Statistics of the iterations with full batches, and of those with half batches."""

    full: IterationStatistics
    half: IterationStatistics

    @classmethod
    def of(cls, report: Mapping[str, Any] | None) -> "_BatchTimes":
        """Return the statistics that a process has reported."""
        assert report is not None
        names = [field.name for field in fields(IterationStatistics)]
        return cls(*(IterationStatistics(**{name: part[name] for name in names}) for part in (report, report["half"])))

    def since(self, first: "_BatchTimes") -> "_BatchTimes":
        """Return the statistics without those of the first iterations."""
        return _BatchTimes(self.full - first.full, self.half - first.half)

    @property
    def fixed_time(self) -> float | None:
        """Seconds of an iteration with no samples, by the line through both mean times; None: too few iterations."""
        full, half = self.full, self.half
        if not full.iterations or half.iterations < 2 or full.batch == half.batch:
            return None
        per_sample = (full.mean - half.mean) / (full.batch - half.batch)
        return min(max(0.0, full.mean - per_sample * full.batch), MAX_FIXED_SHARE * full.mean)
