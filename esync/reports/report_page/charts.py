"""Charts of groups of runs: the metric, throughput, traffic, and how many devices compute."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from ...runtime.logged_values import NOISE_SCALE
from ..run_groups import Group, Section
from ..runs import LoggedRun
from ..style import INVALID
from .content import Chart, Charts, Curve, Format, LineStyle
from .series import POINTS, Series, mean_series, means_over_time, rate_over_time, thinned

#: Dashes of Matplotlib's named lines, in pixels.
_DASHES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("-", "solid"), ()),
    **dict.fromkeys(("--", "dashed"), (8.0, 4.0)),
    **dict.fromkeys(("-.", "dashdot"), (9.0, 3.0, 2.0, 3.0)),
    **dict.fromkeys((":", "dotted"), (2.0, 3.0)),
}
#: Pixels per unit of Matplotlib's lengths, which are in line widths.
_DASH_SCALE = 1.8
#: Number of groups up to which curves have POINTS points; with more groups, at least MIN_POINTS.
FEW_GROUPS, MIN_POINTS = 8, 60
#: Numbers that algorithms log, in the place of the program → title and note of the chart.
LOGGED_BY_ESYNC = {
    NOISE_SCALE: (
        "Gradient noise scale in samples",
        "Measured by ESync: a step of fewer samples gains from further workers.",
    )
}
#: Returns the series of a run that a chart shows.
SeriesOf = Callable[[LoggedRun], Series]


def charts(section: Section) -> list[str | Charts]:
    """Return the charts of a section: the metric, and below it all others."""
    form: Format = "accuracy" if section.metric.is_accuracy else "metric"
    over_time = _curves(section, lambda run: _ascending(run.figures.times, run.figures.accuracies))
    evaluated: str | Charts = "Nothing was evaluated."
    if over_time[0]:
        over_rounds = _curves(section, _evaluations_over_rounds)
        axes: dict[Literal["time", "rounds"], Sequence[Curve]] = {"time": over_time[0]}
        if over_rounds[0]:
            axes["rounds"] = over_rounds[0]
        evaluated = Charts([Chart(section.metric.title, form, axes, over_time[1], section.target)])
    several = any(len(group.counted) > 1 for group in section.groups)
    band = "Mean of the runs ± one standard deviation. " if several else ""
    devices = [device for group in section.groups for run in group.counted for device in run.devices.values()]
    rates: list[tuple[str, Format, SeriesOf, str]] = [
        ("Throughput in samples per second", "number", _samples, ""),
        ("Traffic of all workers", "rate", _bytes, ""),
        ("Devices computing", "share", _computing, ""),
    ]
    for name in dict.fromkeys(name for device in devices for name in device.logged):
        title, source = LOGGED_BY_ESYNC.get(name, (name, "Logged by the program."))
        rates.append((title, "metric", partial(_logged, name), f"{source} "))
    further = []
    for title, unit, amounts, source in rates:
        curves, note = _curves(section, amounts)
        if curves:
            further.append(Chart(title, unit, {"time": curves}, f"{source}{band}{note}".strip()))
    return [evaluated, Charts(further)]


def _curves(section: Section, of: SeriesOf) -> tuple[list[Curve], str]:
    """Return the curves of all groups that have one, and notes about omitted points."""
    curves, notes = [], []
    limit = max(MIN_POINTS, POINTS * FEW_GROUPS // max(FEW_GROUPS, len(section.groups)))
    for group in section.groups:
        curves_of_runs = [of(run) for run in group.counted]
        series, step = thinned(mean_series(curves_of_runs), limit)
        if not series.x:
            continue
        if step > 1:
            places = len({x for curve in curves_of_runs for x in curve.x})
            notes.append(f"{group.label}: {len(series.x)} of {places:,} points are drawn.")
        curves.append(Curve(group_label(group), line_style(group), series.x, series.y, series.low, series.high))
    return curves, " ".join(notes)


def _evaluations_over_rounds(run: LoggedRun) -> Series:
    rounds = tuple(map(float, run.figures.evaluated_rounds))
    return _ascending(rounds, run.figures.accuracies) if len(rounds) == len(run.figures.accuracies) else Series((), ())


def _ascending(places: Sequence[float], values: Sequence[float]) -> Series:
    """Return a series with ascending x; logs of two runs in one folder may not be in order."""
    pairs = sorted(dict(zip(places, values, strict=True)).items())
    return Series(tuple(x for x, _ in pairs), tuple(value for _, value in pairs))


def _samples(run: LoggedRun) -> Series:
    return rate_over_time([(device, device.num_samples_list) for device in run.devices.values()])


def _bytes(run: LoggedRun) -> Series:
    devices = list(run.devices.values())
    if not all(device.bytes_sent_list for device in devices):
        return Series((), ())
    directions = [
        [sent + received for sent, received in zip(device.bytes_sent_list, device.bytes_received_list, strict=True)]
        if device.bytes_received_list
        else device.bytes_sent_list
        for device in devices
    ]
    return rate_over_time(list(zip(devices, directions, strict=True)))


def _computing(run: LoggedRun) -> Series:
    """Return the share of the devices that compute, on average, over time."""
    devices = list(run.devices.values())
    if not all(device.computing_time_list for device in devices):
        return Series((), ())
    sums = rate_over_time([(device, device.computing_time_list) for device in devices])
    return Series(sums.x, tuple(min(1.0, total / len(devices)) for total in sums.y))


def _logged(name: str, run: LoggedRun) -> Series:
    return means_over_time(list(run.devices.values()), name)


def group_label(group: Group) -> str:
    """Return the label of a group, with the reason if its figures are not valid."""
    return f"{group.label} ({group.invalid})" if group.invalid else group.label


def line_style(group: Group) -> LineStyle:
    """Return the style of a group's curves, which is grey if its figures are not valid."""
    style = group.runs[0].mode.style
    line = style.line
    dash = _DASHES.get(line, ()) if isinstance(line, str) else tuple(_DASH_SCALE * length for length in line[1])
    return LineStyle(INVALID if group.invalid else style.color.lower(), dash)
