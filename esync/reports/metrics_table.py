"""Compute the metrics of each run from its summary, and compare runs."""

from dataclasses import asdict, dataclass
from typing import Any

from .. import config
from . import metrics
from .modes import BASELINE, BASELINE_LABEL, Mode
from .summary_file import DeviceSummary, Summary


@dataclass(frozen=True)
class DeviceFigures:
    """One device of one run; times in seconds."""

    host: str
    device: str
    rounds: int
    missing_rounds: int
    samples: int
    computing_ratio: float | None
    published_computing_ratio: float | None
    wait_mean: float | None
    wait_max: float | None
    step_time: float | None
    overrun_share: float | None  # of a padded device's iterations; None for a device that is not padded

    @property
    def name(self) -> str:
        """Host and device."""
        return f"{self.host} {self.device}"


@dataclass(frozen=True)
class RunFigures:
    """One run: one mode on one cluster. Times in seconds, rates per second.

    Attributes:
        mode: which mode.
        devices: in the order of the summary.
        total_time: of the device that ended last.
        accuracy_device: the device whose evaluations are shown; None if nothing was evaluated.
        times, accuracies: its evaluations.
        target: accuracy that `time_to_target` is about.
        speed_limit: sum of the devices' speeds in samples per second; None unless all of them are
            known.
        bytes_sent, bytes_received: per second, all devices; received is None where it is not known.
        bytes_estimated: they are computed from the size of the model, not measured.
        overrun_share: share of the padded iterations that took longer than the speed they stand
            for.
    """

    mode: Mode
    devices: tuple[DeviceFigures, ...]
    total_time: float
    accuracy_device: str | None
    times: tuple[float, ...]
    accuracies: tuple[float, ...]
    target: float
    throughput: float | None
    speed_limit: float | None
    bytes_sent: float | None
    bytes_received: float | None
    bytes_estimated: bool
    overrun_share: float

    @property
    def time_to_target(self) -> float | None:
        """Time of the first evaluation that reached the target."""
        return metrics.time_to_target(self.times, self.accuracies, self.target)

    @property
    def efficiency(self) -> float | None:
        """Throughput as a share of the sum of the devices' speeds."""
        return metrics.efficiency(self.throughput, self.speed_limit)

    @property
    def final_accuracy(self) -> float | None:
        """Of the last evaluation."""
        return self.accuracies[-1] if self.accuracies else None

    @property
    def bytes_per_second(self) -> float | None:
        """Both directions, as far as they are known."""
        known = [part for part in (self.bytes_sent, self.bytes_received) if part is not None]
        return sum(known) if known else None

    @property
    def invalid(self) -> str | None:
        """Why these figures must not pass for measurements of the emulated cluster; None if they may."""
        if self.overrun_share > config.OVERRUN_LIMIT:
            return f"invalid: overruns {100 * self.overrun_share:.1f} %"
        return None

    def bracketed(self, figure: str) -> str:
        """Put a printed figure into brackets if it must not pass for one."""
        return f"({figure})" if self.invalid and any(character.isdigit() for character in figure) else figure

    @property
    def missing_rounds(self) -> int:
        """Rounds that the logs of all devices together lack; with them, sums per second are too low."""
        return sum(device.missing_rounds for device in self.devices)


def run_figures(mode: Mode, summary: Summary, target: float) -> RunFigures:
    """Work out the figures of one run."""
    columns = [device for devices in summary.values() for device in devices.values()]
    devices = tuple(
        _device_figures(host, name, device) for host, group in summary.items() for name, device in group.items()
    )
    total_time = max(device.total_time for device in columns)
    # Rank 0 evaluates. After it was replaced two devices have accuracies: the one with more of them
    # is shown.
    best = max(range(len(columns)), key=lambda index: len(columns[index].accuracy_rounds))
    evaluated = columns[best]
    measured = all(device.bytes_sent_list for device in columns)
    padded = [device for device in columns if _padded(device)]
    return RunFigures(
        mode=mode,
        devices=devices,
        total_time=total_time,
        accuracy_device=devices[best].name if evaluated.accuracy_rounds else None,
        times=tuple(evaluated.accuracy_time_list),
        accuracies=tuple(evaluated.accuracy_exact_list),
        target=target,
        throughput=metrics.rate(sum(sum(device.num_samples_list) for device in columns), total_time),
        speed_limit=metrics.speed_limit(
            [device.run.batch_size if device.run else None for device in columns],
            [device.run.step_time if device.run else None for device in columns],
        ),
        bytes_sent=metrics.rate(sum(sum(device.bytes_sent_list) for device in columns), total_time)
        if measured
        else None,
        bytes_received=metrics.rate(sum(sum(device.bytes_received_list) for device in columns), total_time)
        if all(device.bytes_received_list for device in columns)
        else None,
        bytes_estimated=any(device.bytes_estimated for device in columns),
        overrun_share=metrics.share(
            sum(device.overruns for device in padded), sum(device.iterations for device in padded)
        ),
    )


def _device_figures(host: str, name: str, device: DeviceSummary) -> DeviceFigures:
    wait = metrics.mean_and_max(device.wait_list)
    return DeviceFigures(
        host=host,
        device=name,
        rounds=len(device.rounds_list),
        missing_rounds=device.missing_rounds,
        samples=sum(device.num_samples_list),
        computing_ratio=metrics.computing_ratio(device.computing_time_list, device.total_time),
        published_computing_ratio=metrics.published_computing_ratio(device.aggregate_time_list, device.total_time),
        wait_mean=wait and wait[0],
        wait_max=wait and wait[1],
        step_time=device.run.step_time if device.run else None,
        overrun_share=metrics.share(device.overruns, device.iterations) if _padded(device) else None,
    )


def _padded(device: DeviceSummary) -> bool:
    """Return whether the device's iterations were padded to stand for a slower one."""
    return bool(device.overruns or (device.run and device.run.step_time))


@dataclass(frozen=True)
class Speedup:
    """Speedup of one run over SSGD on the same kind of data, or why there is none."""

    value: float | None
    reason: str | None = None


def speedup(run: RunFigures, runs: list[RunFigures]) -> Speedup:
    """Compare a run's time to the target with that of SSGD (paper, section 5)."""
    baseline = next((r for r in runs if r.mode.name == BASELINE and r.mode.iid == run.mode.iid), None)
    if baseline is None:
        return Speedup(None, f"no {BASELINE_LABEL} run")
    if run.invalid:
        return Speedup(None, "invalid")
    if run.time_to_target is None:
        return Speedup(None, "not reached")
    if baseline.invalid:
        return Speedup(None, f"{BASELINE_LABEL} invalid")
    if baseline.time_to_target is None:
        return Speedup(None, f"{BASELINE_LABEL} not reached")
    return Speedup(metrics.speedup(baseline.time_to_target, run.time_to_target))


def as_json(run: RunFigures, runs: list[RunFigures]) -> dict[str, Any]:
    """Return the figures of one run for speedup.json."""
    compared = speedup(run, runs)
    return {
        "name": run.mode.name,
        "method": run.mode.method,
        "iid": run.mode.iid,
        "valid": run.invalid is None,
        "invalid_reason": run.invalid,
        "speedup": compared.value,
        "speedup_missing_because": compared.reason,
        "time_to_target": run.time_to_target,
        "final_accuracy": run.final_accuracy,
        "accuracy_device": run.accuracy_device,
        "evaluations": len(run.accuracies),
        "total_time": run.total_time,
        "throughput": run.throughput,
        "speed_limit": run.speed_limit,
        "efficiency": run.efficiency,
        "bytes_per_second": run.bytes_per_second,
        "bytes_sent_per_second": run.bytes_sent,
        "bytes_received_per_second": run.bytes_received,
        "bytes_estimated": run.bytes_estimated,
        "overrun_share": run.overrun_share,
        "missing_rounds": run.missing_rounds,
        "devices": [asdict(device) for device in run.devices],
    }
