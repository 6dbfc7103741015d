"""Compute the metrics of each run from its summary."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from .. import config
from ..runtime.errors import enumeration
from ..runtime.evaluation_result import recalls
from ..runtime.metric import Metric
from . import metrics
from .modes import Mode
from .summary_file import DeviceSummary, Summary, columns_of


@dataclass(frozen=True)
class DeviceFigures:
    """Figures of one device in one run; times in seconds.

    `computing_ratio` is the share of the total time spent computing; `published_computing_ratio` is
    1 − aggregation ÷ total time, where everything but aggregation counts as computing. `speed` is in
    samples per second while the device computes. None stands for what the log does not show.
    """

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
    whole_batch: int | None  # samples that take the step time, where batches follow the speeds; None if all do
    overrun_share: float | None  # share of overrun iterations; None if they are not padded
    speed: float | None = None
    unit: Literal["round", "exchange"] = "round"  # what `rounds` counts; asynchronous: exchanges of the device

    @property
    def name(self) -> str:
        """Host and device."""
        return f"{self.host} {self.device}"


@dataclass(frozen=True)
class RunFigures:
    """Figures of one run, which is one mode on one cluster; times in seconds, rates per second.

    Attributes:
        mode: the run's mode.
        devices: figures of its devices, in the order of the summary.
        rounds: rounds of the run; in asynchronous modes commits ÷ workers.
        total_time: total time of the device that ended last.
        accuracy_device: the device with the evaluations; None without evaluations.
        metric: the metric of its evaluations.
        times, accuracies: its evaluations.
        parts: their further results, by name.
        accuracy_rounds: the rounds, or exchanges of that device, that were evaluated.
        evaluated_rounds: the rounds of the run that were evaluated.
        round_ends: number and end of each round of that device, in whole seconds.
        target: the value of the metric for `time_to_target`; None if there is none.
        throughput: samples per second of all devices; None if unknown.
        speed_limit: sum of the devices' speeds in samples per second; None unless all are known.
        bytes_sent, bytes_received: bytes per second of all devices; None if unknown.
        bytes_estimated: whether they are computed from the size of the model, not measured.
        overrun_share: share of the padded iterations that took longer than their step time.
        times_of_runs: if these are means of several runs, the time to the target of each run, or
            None for a run that has not reached it.
    """

    mode: Mode
    devices: tuple[DeviceFigures, ...]
    rounds: int
    total_time: float
    accuracy_device: str | None
    metric: Metric
    times: tuple[float, ...]
    accuracies: tuple[float, ...]
    accuracy_rounds: tuple[int, ...]
    evaluated_rounds: tuple[int, ...]
    round_ends: tuple[tuple[int, float], ...]
    target: float | None
    throughput: float | None
    speed_limit: float | None
    bytes_sent: float | None
    bytes_received: float | None
    bytes_estimated: bool
    overrun_share: float
    times_of_runs: tuple[float | None, ...] = ()
    parts: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def time_to_target(self) -> float | None:
        """Time of the first evaluation that reached the target, or None.

        For several runs it is the mean, or None if one of them has not reached the target.
        """
        if self.times_of_runs:
            reached = [time for time in self.times_of_runs if time is not None]
            return fmean(reached) if len(reached) == len(self.times_of_runs) else None
        if self.target is None:
            return None
        return metrics.time_to_target(self.times, self.accuracies, self.target, self.metric)

    @property
    def efficiency(self) -> float | None:
        """Throughput as a share of the sum of the devices' speeds."""
        return metrics.efficiency(self.throughput, self.speed_limit)

    @property
    def fastest(self) -> DeviceFigures | None:
        """The fastest device; None unless the speed of every device is known."""
        return None if self.speedup_limit is None else max(self.devices, key=lambda device: device.speed or 0.0)

    @property
    def speedup_limit(self) -> float | None:
        """Sum of the devices' speeds ÷ the fastest one's; see `metrics.speedup_limit`."""
        return metrics.speedup_limit([device.speed for device in self.devices])

    @property
    def final_accuracy(self) -> float | None:
        """Accuracy, or other metric, of the last evaluation; None if nothing was evaluated."""
        return self.accuracies[-1] if self.accuracies else None

    @property
    def best_accuracy(self) -> float | None:
        """Best value of the metric in any evaluation; None if nothing was evaluated."""
        return self.metric.best(self.accuracies)

    @property
    def final_parts(self) -> dict[str, float | None]:
        """Further results of the last evaluation, by name."""
        return {name: values[-1] for name, values in self.parts.items() if values}

    @property
    def min_recall(self) -> float | None:
        """Lowest recall of a class in the last evaluation; None if no recall is known."""
        return min(recalls(self.final_parts).values(), default=None)

    @property
    def mean_recall(self) -> float | None:
        """Mean recall of the classes in the last evaluation; None if no recall is known."""
        values = recalls(self.final_parts).values()
        return fmean(values) if values else None

    @property
    def bytes_per_second(self) -> float | None:
        """Sum of the known bytes per second in both directions."""
        directions = [part for part in (self.bytes_sent, self.bytes_received) if part is not None]
        return sum(directions) if directions else None

    @property
    def invalid(self) -> str | None:
        """Why these figures are not valid for the emulated cluster; None if they are."""
        if self.overrun_share > config.OVERRUN_LIMIT:
            return f"invalid: overruns {_percent(self.overrun_share)}"
        return None

    @property
    def overruns(self) -> str:
        """A sentence about the overruns of the run and of the worst devices; "" where no device has too many."""
        devices = [device for device in self.devices if (device.overrun_share or 0.0) > config.OVERRUN_LIMIT]
        if not devices:
            return ""
        worst = [
            f"{device.name} {_percent(device.overrun_share or 0.0)}"
            f"{f' of {device.step_time:g} s' if device.step_time else ''}"
            f"{f' for {device.whole_batch} samples' if device.step_time and device.whole_batch else ''}"
            for device in sorted(devices, key=lambda device: -(device.overrun_share or 0.0))
        ]
        return (
            f"{_percent(self.overrun_share)} of the iterations took longer than their step time (by device: "
            f"{enumeration(worst, 5)})"
        )

    def bracketed(self, figure: str) -> str:
        """Return a printed figure, in brackets if it is invalid."""
        return f"({figure})" if self.invalid and any(character.isdigit() for character in figure) else figure

    @property
    def missing_rounds(self) -> int:
        """Number of rounds that are missing in the logs of all devices; throughputs are too low by these."""
        return sum(device.missing_rounds for device in self.devices)

    def as_json(self) -> dict[str, Any]:
        """Return the figures that all JSON files contain, without the final value and the devices."""
        return {
            "valid": self.invalid is None,
            "invalid_reason": self.invalid,
            "target": self.target,
            "time_to_target": self.time_to_target,
            "evaluations": len(self.accuracies),
            "min_recall": self.min_recall,
            "mean_recall": self.mean_recall,
            "total_time": self.total_time,
            "rounds": self.rounds,
            "samples": sum(device.samples for device in self.devices),
            "throughput": self.throughput,
            "speed_limit": self.speed_limit,
            "speedup_limit": self.speedup_limit,
            "fastest_device": self.fastest and self.fastest.name,
            "efficiency": self.efficiency,
            "bytes_per_second": self.bytes_per_second,
            "bytes_sent_per_second": self.bytes_sent,
            "bytes_received_per_second": self.bytes_received,
            "bytes_estimated": self.bytes_estimated,
            "overrun_share": self.overrun_share,
            "missing_rounds": self.missing_rounds,
        }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def metric_of(summary: Summary) -> Metric:
    """Return the metric of a run's evaluations."""
    columns = columns_of(summary)
    return columns[_evaluated(columns)].metric


def common_target(summaries: Iterable[Summary], target: float | None) -> float | None:
    """Return the target by which runs of one metric are compared.

    That is the given one, otherwise the default for accuracies, otherwise the target of all runs if
    it is the same, otherwise None.
    """
    if target is not None:
        return target
    columns = [column for summary in summaries for column in columns_of(summary)]
    if all(column.metric.is_accuracy for column in columns):
        return config.TARGET_ACCURACY
    targets = {column.run.target for column in columns if column.run and not column.metric.is_accuracy}
    return targets.pop() if len(targets) == 1 else None


def _evaluated(columns: list[DeviceSummary]) -> int:
    """Return the index of the device with the most evaluations.

    Rank 0 evaluates. If it was replaced, two devices may have evaluations.
    """
    return max(range(len(columns)), key=lambda index: len(columns[index].accuracy_rounds))


def run_figures(mode: Mode, summary: Summary, target: float | None) -> RunFigures:
    """Compute the figures of one run."""
    columns = columns_of(summary)
    devices = tuple(
        _device_figures(host, name, device) for host, group in summary.items() for name, device in group.items()
    )
    total_time = max(device.total_time for device in columns)
    best = _evaluated(columns)
    evaluated = columns[best]
    measured = all(device.bytes_sent_list for device in columns)
    padded = [device for device in columns if _padded(device)]
    return RunFigures(
        mode=mode,
        devices=devices,
        rounds=max(device.run_rounds for device in columns),
        total_time=total_time,
        accuracy_device=devices[best].name if evaluated.accuracy_rounds else None,
        metric=evaluated.metric,
        times=tuple(evaluated.accuracy_time_list),
        accuracies=tuple(evaluated.accuracy_exact_list),
        parts=evaluated.parts,
        accuracy_rounds=tuple(evaluated.accuracy_rounds),
        evaluated_rounds=tuple(evaluated.evaluated_rounds),
        round_ends=tuple(evaluated.round_ends),
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
    waits = [wait for wait in device.wait_list if wait is not None]
    aggregating = metrics.rate(sum(device.aggregate_time_list), device.total_time)
    return DeviceFigures(
        host=host,
        device=name,
        rounds=device.rounds,
        missing_rounds=device.missing_rounds,
        samples=sum(device.num_samples_list),
        computing_ratio=metrics.rate(sum(device.computing_time_list), device.total_time)
        if device.computing_time_list
        else None,
        published_computing_ratio=None if aggregating is None else 1 - aggregating,
        wait_mean=fmean(waits) if waits else None,
        wait_max=max(waits, default=None),
        step_time=device.run.step_time if device.run else None,
        whole_batch=device.run.whole_batch if device.run else None,
        overrun_share=metrics.share(device.overruns, device.iterations) if _padded(device) else None,
        speed=_speed(device),
        unit=device.unit,
    )


def _speed(device: DeviceSummary) -> float | None:
    """Return a device's samples per second while it computes; None for logs without run.json.

    That is batch size ÷ step time for an emulated device, otherwise samples ÷ seconds of computing.
    """
    if device.run is None:
        return None
    if device.run.step_time:
        return device.run.batch_size / device.run.step_time if device.run.batch_size else None
    return metrics.rate(sum(device.num_samples_list), sum(device.computing_time_list)) or None


def _padded(device: DeviceSummary) -> bool:
    """Return whether the device's iterations were padded to emulate a slower device."""
    return bool(device.overruns or (device.run and device.run.step_time))
