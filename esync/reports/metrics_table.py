"""Compute the metrics of each run from its summary, and compare runs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from .. import config
from ..algorithms.registry import ALGORITHMS
from ..runtime.metric import Metric
from . import metrics
from .modes import BASELINE, STANDALONE, Mode
from .summary_file import DeviceSummary, Summary


@dataclass(frozen=True)
class DeviceFigures:
    """Figures of one device in one run; times in seconds."""

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
    overrun_share: float | None  # share of a padded device's iterations; None if it is not padded

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
        total_time: total time of the device that ended last.
        accuracy_device: the device whose evaluations are shown; None if nothing was evaluated.
        metric: what its evaluations compute.
        times, accuracies: its evaluations.
        accuracy_rounds: the rounds that were evaluated.
        round_ends: number and end of each round of that device; whole seconds.
        target: the value of the metric for `time_to_target`; None if there is none.
        throughput: samples per second of all devices; None if unknown.
        speed_limit: sum of the devices' speeds in samples per second; None unless all of them are
            known.
        bytes_sent, bytes_received: bytes per second of all devices; None where unknown.
        bytes_estimated: whether they are computed from the size of the model, not measured.
        overrun_share: share of the padded iterations that took longer than their step time.
    """

    mode: Mode
    devices: tuple[DeviceFigures, ...]
    total_time: float
    accuracy_device: str | None
    metric: Metric
    times: tuple[float, ...]
    accuracies: tuple[float, ...]
    accuracy_rounds: tuple[int, ...]
    round_ends: tuple[tuple[int, float], ...]
    target: float | None
    throughput: float | None
    speed_limit: float | None
    bytes_sent: float | None
    bytes_received: float | None
    bytes_estimated: bool
    overrun_share: float

    @property
    def time_to_target(self) -> float | None:
        """Time of the first evaluation that reached the target; None if none did."""
        if self.target is None:
            return None
        return metrics.time_to_target(self.times, self.accuracies, self.target, self.metric)

    @property
    def efficiency(self) -> float | None:
        """Throughput as a share of the sum of the devices' speeds."""
        return metrics.efficiency(self.throughput, self.speed_limit)

    @property
    def final_accuracy(self) -> float | None:
        """Accuracy, or other metric, of the last evaluation; None if nothing was evaluated."""
        return self.accuracies[-1] if self.accuracies else None

    @property
    def best_accuracy(self) -> float | None:
        """Best value of the metric in any evaluation; None if nothing was evaluated."""
        return self.metric.best(self.accuracies)

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes per second in both directions, as far as they are known."""
        known = [part for part in (self.bytes_sent, self.bytes_received) if part is not None]
        return sum(known) if known else None

    @property
    def invalid(self) -> str | None:
        """Why these are no valid figures of the emulated cluster; None if they are."""
        if self.overrun_share > config.OVERRUN_LIMIT:
            return f"invalid: overruns {100 * self.overrun_share:.1f} %"
        return None

    def bracketed(self, figure: str) -> str:
        """Return a printed figure, in brackets if it is invalid."""
        return f"({figure})" if self.invalid and any(character.isdigit() for character in figure) else figure

    @property
    def missing_rounds(self) -> int:
        """Number of rounds missing in the logs of all devices.

        If there are any, sums per second are too low.
        """
        return sum(device.missing_rounds for device in self.devices)


def metric_of(summary: Summary) -> Metric:
    """Return the metric of a run's evaluations."""
    columns = _columns(summary)
    return columns[_evaluated(columns)].metric


def common_target(summaries: Iterable[Summary], given: float | None) -> float | None:
    """Return the target by which runs of one metric are compared.

    This is the given one, else for accuracies the usual one, else the one that all of the runs had,
    or None.
    """
    if given is not None:
        return given
    columns = [column for summary in summaries for column in _columns(summary)]
    if all(column.metric.is_accuracy for column in columns):
        return config.TARGET_ACCURACY
    said = {column.run.target for column in columns if column.run and not column.metric.is_accuracy}
    return said.pop() if len(said) == 1 else None


def _columns(summary: Summary) -> list[DeviceSummary]:
    return [device for devices in summary.values() for device in devices.values()]


def _evaluated(columns: list[DeviceSummary]) -> int:
    """Return the index of the device whose evaluations are shown.

    Rank 0 evaluates. If it was replaced, two devices may have evaluations; the one with more of
    them is shown.
    """
    return max(range(len(columns)), key=lambda index: len(columns[index].accuracy_rounds))


def run_figures(mode: Mode, summary: Summary, target: float | None) -> RunFigures:
    """Compute the figures of one run."""
    columns = _columns(summary)
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
        total_time=total_time,
        accuracy_device=devices[best].name if evaluated.accuracy_rounds else None,
        metric=evaluated.metric,
        times=tuple(evaluated.accuracy_time_list),
        accuracies=tuple(evaluated.accuracy_exact_list),
        accuracy_rounds=tuple(evaluated.accuracy_rounds),
        round_ends=tuple(zip(evaluated.rounds_list, evaluated.elapsed_time_list, strict=True)),
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
    """Return whether the device's iterations were padded to emulate a slower device."""
    return bool(device.overruns or (device.run and device.run.step_time))


@dataclass(frozen=True)
class Speedup:
    """Speedup of a run over another one, or the reason why there is none.

    Attributes:
        value: time of the other run ÷ time of this one; None if there is a reason.
        reason: why there is no value.
        limit: sum of this run's devices' speeds ÷ that of the other run's devices, which no
            scheduling can exceed in samples per second; None unless all speeds are known.
    """

    value: float | None
    reason: str | None = None
    limit: float | None = None


def speedup(run: RunFigures, runs: list[RunFigures], baseline: str = BASELINE) -> Speedup:
    """Compare a run's time to the target with that of another algorithm.

    Args:
        run: the run.
        runs: all runs.
        baseline: name of the other algorithm: SSGD, as in the ESync paper (section 5), whose run on
            the same kind of data is taken, or sequential SGD, which always has all of the data. Of
            several runs, the one of the same name is taken, or else the one without a name.
    """
    label = ALGORITHMS[baseline].label
    others = [r for r in runs if r.mode.name == baseline and (baseline == STANDALONE or r.mode.iid == run.mode.iid)]
    if not others:
        return Speedup(None, f"no {label} run")
    other = next((r for name in (run.mode.run, "") for r in others if r.mode.run == name), others[0])
    if len(others) > 1 and other.mode.run not in (run.mode.run, ""):
        return Speedup(None, f"several {label} runs")
    limit = run.speed_limit / other.speed_limit if run.speed_limit and other.speed_limit else None
    return Speedup(*_compared_times(run, other, label), limit)


def _compared_times(run: RunFigures, other: RunFigures, label: str) -> tuple[float | None, str | None]:
    """Return the other run's time to the target ÷ this one's, and why there is none."""
    if other.metric != run.metric:
        return None, f"{label} has another metric"
    if run.target is None:
        return None, "no target"
    if run.invalid:
        return None, "invalid"
    if run.time_to_target is None:
        return None, "not reached"
    if other.invalid:
        return None, f"{label} invalid"
    if other.time_to_target is None:
        return None, f"{label} not reached"
    return metrics.speedup(other.time_to_target, run.time_to_target), None


def as_json(run: RunFigures, runs: list[RunFigures]) -> dict[str, Any]:
    """Return the figures of one run as in speedup.json."""
    compared, alone = speedup(run, runs), speedup(run, runs, STANDALONE)
    return {
        "name": run.mode.name,
        "method": run.mode.method,
        "iid": run.mode.iid,
        "valid": run.invalid is None,
        "invalid_reason": run.invalid,
        "speedup": compared.value,
        "speedup_missing_because": compared.reason,
        "standalone_speedup": alone.value,
        "standalone_speedup_missing_because": alone.reason,
        "standalone_speedup_limit": alone.limit,
        "metric": asdict(run.metric),
        "target": run.target,
        "time_to_target": run.time_to_target,
        "final_accuracy": run.final_accuracy,
        "best_accuracy": run.best_accuracy,
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
