"""Speedups of runs: over the fastest device alone, over SSGD, and the most that there can be.

Synchronous SGD is the baseline of the ESync paper. What a user has anyway is the fastest device
alone: a run of mode local, which is sequential SGD. With v_i samples per second on device i, all
devices together are at most Σ v_i ÷ max v_i times as fast as it (`metrics.speedup_limit`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..algorithms.registry import ALGORITHMS
from . import metrics
from .metrics_table import DeviceFigures, RunFigures
from .modes import BASELINE, STANDALONE

#: A device counts as the fastest one down to this share of its speed: measured speeds vary.
ALIKE = 0.95


@dataclass(frozen=True)
class Speedup:
    """Speedup of a run over another one, or the reason why there is none.

    Attributes:
        value: time of the other run ÷ time of this one; None if there is a reason.
        reason: why there is no value.
        limit: sum of this run's devices' speeds ÷ that of the other run's device or, where it has
            several, of this run's fastest (`metrics.speedup_limit`); None unless all are known.
    """

    value: float | None
    reason: str | None = None
    limit: float | None = None


def speedup(run: RunFigures, runs: Sequence[RunFigures], baseline: str = BASELINE) -> Speedup:
    """Compare a run's time to the target with that of another algorithm.

    Args:
        run: the run.
        runs: all runs.
        baseline: name of the other algorithm: SSGD, as in the ESync paper (section 5), whose run on
            the same kind of data is taken, or sequential SGD, which always has all of the data. Of
            several runs, the one of the same name is taken. Otherwise it is the one without a name
            or, of sequential SGD, the soonest at its target (`best_alone`).
    """
    label = ALGORITHMS[baseline].label
    others = [r for r in runs if r.mode.name == baseline and (baseline == STANDALONE or r.mode.iid == run.mode.iid)]
    if not others:
        return Speedup(None, f"no {label} run")
    other = next((r for r in others if r.mode.run == run.mode.run != ""), None)
    if other is None and baseline == STANDALONE:
        other = best_alone(others)
    elif other is None:
        other = next((r for r in others if not r.mode.run), others[0] if len(others) == 1 else None)
    if other is None:
        return Speedup(None, f"several {label} runs")
    limit = metrics.speedup_limit(_speeds(run), _speeds(other)[0] if len(other.devices) == 1 else None)
    return Speedup(*_compared_times(run, other, label), limit)


def best_alone(runs: Sequence[RunFigures]) -> RunFigures | None:
    """Return the run of mode local that is sooner at its target than all others of them.

    If none of them has reached it, the one with the best metric is returned; None if there is none.
    Invalid ones come last.
    """

    def place(run: RunFigures) -> tuple[bool, bool, float, float]:
        time, best = run.time_to_target, run.best_accuracy
        value = math.inf if best is None else -best if run.metric.goal == "max" else best
        return run.invalid is not None, time is None, time or 0.0, value

    return min((run for run in runs if run.mode.name == STANDALONE), key=place, default=None)


def slower_than_fastest(alone: RunFigures, runs: Sequence[RunFigures]) -> DeviceFigures | None:
    """Return the fastest device of all runs if a run of mode local was on a clearly slower one.

    Returns None where it was on the fastest, or where that is not known.
    """
    own = alone.fastest
    fastest = [run.fastest for run in runs if run.fastest is not None]
    most = max(fastest, key=lambda device: device.speed or 0.0, default=None)
    if own is None or most is None or (own.speed or 0.0) >= ALIKE * (most.speed or 0.0):
        return None
    return most


def on_same_cluster(run: RunFigures, other: RunFigures) -> bool:
    """Return whether two runs seem to be of one cluster: their devices are known to be as fast.

    A run of mode local has to be on a device as fast as the fastest of the other run. Other runs
    have to have as many devices, with the same sum of their speeds.
    """
    if not (run.fastest and other.fastest):
        return False
    alike = [(run.fastest.speed or 0.0, other.fastest.speed or 0.0)]
    if STANDALONE not in (run.mode.name, other.mode.name):
        alike += [(run.speedup_limit or 0.0, other.speedup_limit or 0.0), (len(run.devices), len(other.devices))]
    return all(min(two) >= ALIKE * max(two) for two in alike)


def against_fastest(throughput: float | None, speeds: Mapping[str, float | None]) -> str:
    """Return in words how a cluster's samples per second compare with the fastest device's alone.

    Args:
        throughput: samples per second of all devices.
        speeds: name of each device → its samples per second while it computes.

    Returns:
        "" for one device, or where a speed is not known.
    """
    limit = metrics.speedup_limit(list(speeds.values()))
    if throughput is None or limit is None or len(speeds) < 2:
        return ""
    name = max(speeds, key=lambda each: speeds[each] or 0.0)
    return f"{throughput / (speeds[name] or 1.0):.2f} times the fastest device alone, {name} (limit {limit:.2f})"


def _speeds(run: RunFigures) -> list[float | None]:
    return [device.speed for device in run.devices]


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


def as_json(run: RunFigures, runs: Sequence[RunFigures]) -> dict[str, Any]:
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
        "speedup_limit": run.speedup_limit,
        "fastest_device": run.fastest and run.fastest.name,
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
