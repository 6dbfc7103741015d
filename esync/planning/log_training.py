"""Read from a run's logs how many samples it has needed to a target, and its gradient noise scale."""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..reports.runs import LoggedRun, RunError, find_runs
from ..reports.summary_file import DeviceSummary
from ..runtime.errors import ExpectedError
from ..runtime.logged_values import NOISE_SCALE
from ..samples import UNKNOWN, Training, persistent, worth
from .forecast import delayed, step_factor

#: Most parts of a run, each with a noise scale of its own.
_SECTIONS = 200


class TargetError(ExpectedError):
    """Raised when the logs do not reach the target; the message says what they reach."""

    exit_code = 2


def read_training(folder: Path, target: float | None = None) -> tuple[Training, list[str]]:
    """Return the training in a folder of logs, and sentences about what was taken from it.

    Args:
        folder: of one run.
        target: value of its metric; None: the best one that it has reached.

    Raises:
        RunError: the folder holds no run, several, or only a part of one.
        TargetError: the run has not reached the target.
    """
    runs = find_runs([folder])
    if len(runs) != 1:
        raise RunError(f"{folder} holds several runs: name the folder of one of them")
    end, reached, notes = _end(runs[0], target)
    figures, devices = runs[0].figures, list(runs[0].devices.values())
    leader = next((one for one in devices if one.run and one.run.model_dump().get("rank") == 0), devices[0])
    count = max(1, int(np.searchsorted(leader.total_time_list, end + 1e-6, "right")))
    last = np.unique(np.linspace(0, count - 1, _SECTIONS + 1).round().astype(int))[count > 1 :]
    ends = np.array(leader.total_time_list)[last]
    samples = np.diff(sum(_samples_by(ends, device) for device in devices), prepend=0.0)
    counts = np.array([max(1, device.iterations) for device in devices]) / max(1, figures.rounds)
    batch_size = sum(sum(device.num_samples_list) for device in devices) / sum(device.iterations for device in devices)
    options = {**runs[0].options, **runs[0].facts}
    exchanges = sum(filter(None, leader.transfer_list))
    noise = _filled(leader.logged.get(NOISE_SCALE, [])[:count])
    if noise is not None and len(devices) == 1:  # the noise scale is measured from the differences of several
        raise RunError(f"{folder} has the logs of one device of several: copy those of the other hosts into it")
    noise_scales = (
        np.full(last.size, UNKNOWN.noise_scales) if noise is None else persistent(noise[last] / batch_size, counts)
    )
    iterations = delayed(counts, options, exchanges, leader.total_time)
    brought = worth(noise_scales, iterations, step_factor(options, counts))
    optimizer = str(options.get("optimizer", ""))
    return Training(samples, noise_scales, brought, reached, noise is not None, optimizer=optimizer), notes


def _end(run: LoggedRun, target: float | None) -> tuple[float, str, list[str]]:
    """Return the time of the target, or of the run's end; the target as text, and a sentence about it."""
    figures = run.figures
    metric, best = figures.metric, figures.best_accuracy
    if best is None:
        if target is not None:
            raise TargetError(f"{run.folder}: nothing was evaluated in this run, so that it has no time to a target")
        return figures.total_time, "", ["the logs have no evaluations, so that there are no times to an accuracy"]
    goal = best if target is None else target
    times = [
        seconds for seconds, value in zip(figures.times, figures.accuracies, strict=True) if metric.reached(value, goal)
    ]
    if not times:
        raise TargetError(
            f"{run.folder}: {metric.label} {metric.text(goal)} was not reached; the best value in these logs is "
            f"{metric.text(best)}: ask for that, or less"
        )
    which = "the best in the logs; --target-accuracy asks for another one" if target is None else "as asked for"
    return min(times), metric.text(goal), [f"times to {metric.label} {metric.text(goal)}, {which}"]


def _samples_by(ends: np.ndarray, device: DeviceSummary) -> np.ndarray:
    """Return the samples that a device has used by these times."""
    done = np.concatenate([[0], np.cumsum(device.num_samples_list)])
    return done[np.searchsorted(device.total_time_list, ends + 1e-6, "right")]


def _filled(values: Iterable[float | None]) -> np.ndarray | None:
    """Return the values with the next known one, or else the last, in the place of those that are missing."""
    logged = np.array([math.nan if value is None else value for value in values])
    indices = np.flatnonzero(np.isfinite(logged))
    if not indices.size:
        return None
    return logged[indices[np.minimum(np.searchsorted(indices, np.arange(logged.size)), indices.size - 1)]]
