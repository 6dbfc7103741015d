"""Speedups of runs or means: over the fastest device alone, over SSGD, and their limit.

All tables, pages and lines take their speedups from this module. Synchronous SGD is the baseline of
the ESync paper. The other baseline is sequential SGD on the fastest device alone (mode local). With
v_i samples per second on device i, all devices together are at most Σ v_i ÷ max v_i times as fast
(`metrics.speedup_limit`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..algorithms.registry import ALGORITHMS
from ..runtime.run_names import without_seed
from ..runtime.terminal import UNKNOWN
from . import metrics
from .metrics_table import DeviceFigures, RunFigures
from .modes import BASELINE, STANDALONE

#: A device with at least this share of the fastest one's speed counts as equally fast, because
#: measured speeds vary.
ALIKE = 0.95


@dataclass(frozen=True)
class Speedup:
    """Speedup of a run over another one, or the reason why there is none.

    Attributes:
        value: time of the other run ÷ time of this one, or None.
        reason: why there is no value.
        limit: sum of the speeds of this run's devices ÷ speed of the other run's device or, if it has
            several, of this run's fastest (`metrics.speedup_limit`); None unless all are known.
    """

    value: float | None
    reason: str | None = None
    limit: float | None = None

    @property
    def text(self) -> str:
        """The value or the reason, formatted for tables."""
        return self.reason or (f"{self.value:.2f}×" if self.value is not None else UNKNOWN)


def speedup(run: RunFigures, runs: Sequence[RunFigures], name: str = BASELINE) -> Speedup:
    """Compare the time to the target with that of a baseline among the runs.

    Args:
        run: a run, or the means of several runs.
        runs: all comparable runs.
        name: name of the baseline's algorithm: SSGD, as in the ESync paper (section 5), or
            sequential SGD.
    """
    other = baseline(run, runs, name)
    if other is None:
        exists = any(candidate.mode.name == name and candidate.mode.iid == run.mode.iid for candidate in runs)
        return Speedup(None, f"{'several' if exists else 'no'} {ALGORITHMS[name].label} run{'s' * exists}")
    speeds = [device.speed for device in run.devices]
    limit = metrics.speedup_limit(speeds, other.devices[0].speed if len(other.devices) == 1 else None)
    if other.metric != run.metric:
        return Speedup(None, f"{other.mode.label} has another metric", limit)
    if run.target is None:
        return Speedup(None, "no target", limit)
    times = []
    for figures, label in ((run, ""), (other, f"{other.mode.label} ")):
        if figures.invalid:
            return Speedup(None, f"{label}invalid", limit)
        if (time := figures.time_to_target) is None:
            return Speedup(None, f"{label}not {'always ' * any(figures.times_of_runs)}reached", limit)
        times.append(time)
    return Speedup(metrics.rate(times[1], times[0]), None, limit)


def baseline(run: RunFigures, runs: Sequence[RunFigures], name: str = BASELINE) -> RunFigures | None:
    """Return the baseline of a run; None if there is none, or if it is ambiguous.

    For sequential SGD, it is the best run (`best_alone`), because a weaker one would overstate the
    speedup. For another algorithm, it is a run on the same kind of data: the one with the same name,
    otherwise with the same name except for the seed, otherwise without a name, otherwise the only one.
    """
    if name == STANDALONE:
        return best_alone(runs)
    candidates = [candidate for candidate in runs if candidate.mode.name == name and candidate.mode.iid == run.mode.iid]
    run_name = run.mode.run
    choices = (
        [candidate for candidate in candidates if candidate.mode.run == run_name != ""],
        [candidate for candidate in candidates if without_seed(candidate.mode.run) == without_seed(run_name) != ""],
        [candidate for candidate in candidates if not candidate.mode.run],
        candidates,
    )
    chosen = next(filter(None, choices), [])
    return chosen[0] if len(chosen) == 1 else None


def best_alone(runs: Sequence[RunFigures]) -> RunFigures | None:
    """Return the run of mode local that is first to reach its target; None without such runs.

    If none has reached it, return the one with the best metric. Valid runs have precedence.
    """

    def place(run: RunFigures) -> tuple[bool, bool, float, float]:
        time, best = run.time_to_target, run.best_accuracy
        value = math.inf if best is None else -best if run.metric.goal == "max" else best
        return run.invalid is not None, time is None, time or 0.0, value

    return min((run for run in runs if run.mode.name == STANDALONE), key=place, default=None)


def slower_than_fastest(alone: RunFigures, runs: Sequence[RunFigures]) -> DeviceFigures | None:
    """Return the fastest device of all runs if a run of mode local was on a clearly slower one.

    Return None if it was on the fastest, or if that is unknown.
    """
    device = alone.fastest
    fastest = [run.fastest for run in runs if run.fastest is not None]
    fastest_device = max(fastest, key=lambda device: device.speed or 0.0, default=None)
    if device is None or fastest_device is None or (device.speed or 0.0) >= ALIKE * (fastest_device.speed or 0.0):
        return None
    return fastest_device


def on_same_cluster(run: RunFigures, other: RunFigures) -> bool:
    """Return whether two runs are likely to be from one cluster, judged by the speeds of their devices.

    A run of mode local must be on a device as fast as the fastest of the other run. Other runs must
    have equally many devices, with the same sum of speeds.
    """
    if not (run.fastest and other.fastest):
        return False
    alike = [(run.fastest.speed or 0.0, other.fastest.speed or 0.0)]
    if STANDALONE not in (run.mode.name, other.mode.name):
        alike += [(run.speedup_limit or 0.0, other.speedup_limit or 0.0), (len(run.devices), len(other.devices))]
    return all(min(two) >= ALIKE * max(two) for two in alike)


@dataclass(frozen=True)
class OverFastest:
    """Samples per second of all devices ÷ those of the fastest one while it computes.

    Attributes:
        name: name of that device.
        value: the quotient.
        limit: the largest that it can be (`metrics.speedup_limit`).
    """

    name: str
    value: float
    limit: float

    def __str__(self) -> str:
        return f"{self.value:.2f} times the fastest device alone, {self.name} (limit {self.limit:.2f})"


def over_fastest(throughput: float | None, speeds: Mapping[str, float | None]) -> OverFastest | None:
    """Compare a cluster's samples per second with the fastest device's alone.

    Args:
        throughput: samples per second of all devices.
        speeds: name of each device → its samples per second while it computes.

    Returns:
        None for one device, or if a speed is unknown.
    """
    limit = metrics.speedup_limit(list(speeds.values()))
    if throughput is None or limit is None or len(speeds) < 2:
        return None
    name = max(speeds, key=lambda device: speeds[device] or 0.0)
    return OverFastest(name, throughput / (speeds[name] or 1.0), limit)


def as_json(run: RunFigures, runs: Sequence[RunFigures]) -> dict[str, Any]:
    """Return the figures of one run as in speedup.json."""
    compared, alone = speedup(run, runs), speedup(run, runs, STANDALONE)
    return {
        "name": run.mode.name,
        "method": run.mode.method,
        "iid": run.mode.iid,
        "speedup": compared.value,
        "speedup_missing_because": compared.reason,
        "standalone_speedup": alone.value,
        "standalone_speedup_missing_because": alone.reason,
        "standalone_speedup_limit": alone.limit,
        "metric": asdict(run.metric),
        "final_accuracy": run.final_accuracy,
        "best_accuracy": run.best_accuracy,
        "final_parts": run.final_parts,
        "accuracy_device": run.accuracy_device,
        **run.as_json(),
        "devices": [asdict(device) for device in run.devices],
    }
