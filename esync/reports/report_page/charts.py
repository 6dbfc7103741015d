"""Charts of groups of runs: the metric, throughput, traffic, and how many devices compute."""

from collections.abc import Callable, Sequence
from typing import Literal

from ..comparison import Group, Section
from ..runs import LoggedRun
from ..style import INVALID
from .content import Chart, Curve, Format, LineStyle
from .series import POINTS, Series, mean_series, rate_over_time, thinned

#: Dashes of Matplotlib's named lines, in pixels.
_DASHES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("-", "solid"), ()),
    **dict.fromkeys(("--", "dashed"), (8.0, 4.0)),
    **dict.fromkeys(("-.", "dashdot"), (9.0, 3.0, 2.0, 3.0)),
    **dict.fromkeys((":", "dotted"), (2.0, 3.0)),
}
#: Pixels for a length of Matplotlib's, which is in widths of the line.
_DASH_SCALE = 1.8
#: Groups whose curves have POINTS points; those of more groups have fewer, but at least LEAST_POINTS.
FEW_GROUPS, LEAST_POINTS = 8, 60
#: What a chart shows of a run.
SeriesOf = Callable[[LoggedRun], Series]


def charts(section: Section) -> list[str | Chart]:
    """Return the charts of a section, with what else stands between them."""
    form: Format = "accuracy" if section.metric.is_accuracy else "metric"
    over_time = _curves(section, _evaluations_over_time)
    found: list[str | Chart] = []
    if over_time[0]:
        over_rounds = _curves(section, _evaluations_over_rounds)
        axes: dict[Literal["time", "rounds"], Sequence[Curve]] = {"time": over_time[0]}
        if over_rounds[0]:
            axes["rounds"] = over_rounds[0]
        found.append(Chart(section.metric.title, form, axes, over_time[1], section.target))
        found.append("")  # a line of its own
    else:
        found.append("Nothing was evaluated.")
    several = any(len(group.counted) > 1 for group in section.groups)
    band = "Mean of the runs ± one standard deviation. " if several else ""
    rates: tuple[tuple[str, Format, SeriesOf], ...] = (
        ("Throughput in samples per second", "number", _samples),
        ("Traffic of all workers", "rate", _bytes),
        ("Devices computing", "share", _computing),
    )
    for title, unit, amounts in rates:
        curves, note = _curves(section, amounts)
        if curves:
            found.append(Chart(title, unit, {"time": curves}, f"{band}{note}".strip()))
    return found


def _curves(section: Section, of: SeriesOf) -> tuple[list[Curve], str]:
    """Return the curves of all groups that have one, and what was left out of them."""
    curves, notes = [], []
    most = max(LEAST_POINTS, POINTS * FEW_GROUPS // max(FEW_GROUPS, len(section.groups)))
    for group in section.groups:
        own = [of(run) for run in group.counted]
        series, step = thinned(mean_series(own), most)
        if not series.x:
            continue
        if step > 1:
            places = len({place for each in own for place in each.x})
            notes.append(f"{group.label}: {len(series.x)} of {places:,} points are drawn.")
        curves.append(Curve(group_label(group), line_style(group), series.x, series.y, series.low, series.high))
    return curves, " ".join(notes)


def _evaluations_over_time(run: LoggedRun) -> Series:
    return _ascending(run.figures.times, run.figures.accuracies)


def _evaluations_over_rounds(run: LoggedRun) -> Series:
    rounds = tuple(map(float, run.figures.accuracy_rounds))
    return _ascending(rounds, run.figures.accuracies) if len(rounds) == len(run.figures.accuracies) else Series((), ())


def _ascending(places: Sequence[float], values: Sequence[float]) -> Series:
    """Return a series whose places ascend: logs of two runs in one folder may fall back."""
    pairs = sorted(dict(zip(places, values, strict=True)).items())
    return Series(tuple(place for place, _ in pairs), tuple(value for _, value in pairs))


def _samples(run: LoggedRun) -> Series:
    return rate_over_time([(device, device.num_samples_list) for device in run.devices.values()])


def _bytes(run: LoggedRun) -> Series:
    devices = list(run.devices.values())
    if not all(device.bytes_sent_list for device in devices):
        return Series((), ())
    both = [
        [sent + received for sent, received in zip(device.bytes_sent_list, device.bytes_received_list, strict=True)]
        if device.bytes_received_list
        else device.bytes_sent_list
        for device in devices
    ]
    return rate_over_time(list(zip(devices, both, strict=True)))


def _computing(run: LoggedRun) -> Series:
    """Return the share of the devices that compute, on average, over time."""
    devices = list(run.devices.values())
    if not all(device.computing_time_list for device in devices):
        return Series((), ())
    sums = rate_over_time([(device, device.computing_time_list) for device in devices])
    return Series(sums.x, tuple(min(1.0, total / len(devices)) for total in sums.y))


def group_label(group: Group) -> str:
    """Return the label of a group, with the reason where its figures are not valid."""
    return f"{group.label} ({group.invalid})" if group.invalid else group.label


def line_style(group: Group) -> LineStyle:
    """Return the style of a group's curves, which is grey where its figures are not valid."""
    style = group.runs[0].mode.style
    line = style.line
    dash = _DASHES.get(line, ()) if isinstance(line, str) else tuple(_DASH_SCALE * length for length in line[1])
    return LineStyle(INVALID if group.invalid else style.color.lower(), dash)
