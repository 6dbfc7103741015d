"""Curves of groups of runs: their means over time, with a band of one standard deviation."""

from collections.abc import Callable

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .comparison import Comparison
from .figures import layout, time_unit
from .plot import drawings_of
from .run_groups import Group, Section
from .style import STYLE, colour, label, pale


def curves(comparison: Comparison) -> Figure | None:
    """Draw the metric over time, one panel for each section; None if nothing was evaluated."""
    shown = [section for section in comparison.sections if any(_evaluated(group) for group in section.groups)]
    if not shown:
        return None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 5.0 * len(shown)), layout=layout())
        panels = figure.subplots(len(shown), squeeze=False)
        for axes, section in zip(panels[:, 0], shown, strict=True):
            _draw(axes, section)
        return figure


def _evaluated(group: Group) -> bool:
    return any(run.figures.times for run in group.counted)


def _draw(axes: Axes, section: Section) -> None:
    groups = [group for group in section.groups if _evaluated(group)]
    last = max(run.figures.times[-1] for group in groups for run in group.counted if run.figures.times)
    unit, seconds = time_unit(last)
    for group in groups:
        _draw_group(axes, group, seconds)
    if section.target is not None:
        axes.axhline(section.target, color="#777777", linewidth=0.9, label=f"target {section.target:g}")
    axes.set(
        xlim=(0, None),
        xlabel=f"Time ({unit})",
        ylabel=section.metric.title,
        title=f"{section.metric.title} over time, {section.network}: mean ± standard deviation of n runs",
    )
    if section.metric.is_accuracy:
        axes.set_ylim(0, 1)
    axes.legend(loc="best")


def _draw_group(axes: Axes, group: Group, seconds: float) -> None:
    """Draw the mean with its band while all runs have evaluations, and single runs as thin lines after that."""
    first = group.figures
    shade = colour(first)
    several = len(group.counted) > 1
    for run in group.counted if several else ():
        times = [time / seconds for time in run.figures.times]
        axes.plot(times, run.figures.accuracies, color=pale(shade), linewidth=0.7)
    curve = group.curve
    if curve is None:
        return
    times = [time / seconds for time in curve.times]
    if curve.sds:
        low = [mean - sd for mean, sd in zip(curve.means, curve.sds, strict=True)]
        high = [mean + sd for mean, sd in zip(curve.means, curve.sds, strict=True)]
        axes.fill_between(times, low, high, color=shade, alpha=0.25, linewidth=0)
    text = label(f"{group.label}, n = {len(group.counted)}", first)
    axes.plot(times, curve.means, color=shade, linestyle=first.mode.style.line, linewidth=1.8, label=text)


def all_drawings(comparison: Comparison) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw the curves and the five figures of the groups' means, by file name."""
    several = len(comparison.sections) > 1
    drawings: dict[str, Callable[[], Figure]] = {}
    for number, section in enumerate(comparison.sections, 1):
        drawn = drawings_of(section.network, [group.figures for group in section.groups], {})
        drawings |= {f"{section.network}-{number}-{name}" if several else name: draw for name, draw in drawn.items()}
    figure = curves(comparison)
    return drawings if figure is None else {**drawings, "curves": lambda: figure}
