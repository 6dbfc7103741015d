"""Draw the published figures: accuracy and time of every setting, with and without stragglers."""

from collections.abc import Sequence
from itertools import groupby

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..style import STYLE
from .groups import RunGroup

SHADES = {"1": "#E69F00", "0": "#009E73", "10": "#0072B2", "01": "#CC79A7"}
POLICY_SHADES = {"none": "#9A9A9A", "greedy": "#CC79A7", "elastic": "#0072B2"}
OTHER = "#56B4E9"


def figures(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    """Return the figures by name; those with stragglers only if there are such runs."""
    drawn = {}
    for suffix, chosen in (
        ("", [group for group in groups if not group.setting.policy]),
        ("-stragglers", [group for group in groups if group.setting.policy]),
    ):
        if chosen:
            drawn[f"sync-switch-accuracy{suffix}"] = _figure(chosen, accuracy=True)
            drawn[f"sync-switch-time{suffix}"] = _figure(chosen, accuracy=False)
    return drawn


def _figure(groups: Sequence[RunGroup], accuracy: bool) -> Figure:
    """Return a figure with one panel per setup and scenario, and one bar per setting."""
    panels = [list(panel) for _, panel in groupby(groups, key=lambda group: (group.setup, group.setting.scenario))]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, 1.1 * len(groups) + 1.6 * len(panels)), 4.6), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _panel(axes, panel, accuracy)
        return figure


def _panel(axes: Axes, groups: Sequence[RunGroup], accuracy: bool) -> None:
    relative = all(group.relative is not None for group in groups)
    for position, group in enumerate(groups):
        value, deviation = group.accuracy.mean, group.accuracy.deviation
        if not accuracy:
            scale = (group.relative or 0.0) / group.time.mean if relative and group.time.mean else 1.0
            value, deviation = group.time.mean * scale, group.time.deviation * scale
        shade = POLICY_SHADES.get(group.setting.policy) or SHADES.get(group.setting.order, OTHER)
        axes.bar(position, value, 0.7, yerr=deviation, color=shade, capsize=3)
        note = f"{value:.3f}" if accuracy or relative else f"{value:,.0f}"
        if group.diverged:
            note += f"\n{group.diverged} of {len(group.runs)} diverged"
        axes.annotate(note, (position, value + deviation), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    names = [group.setting.policy or group.setting.label for group in groups]
    axes.set_xticks(range(len(groups)), names, rotation=30, ha="right")
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.14)
    scenario = groups[0].setting.scenario
    axes.set_title(f"{groups[0].setup}\n{scenario}" if scenario else groups[0].setup, fontsize=11)
    if accuracy:
        axes.set_ylabel("Test accuracy at the end")
    else:
        axes.set_ylabel(f"Time ÷ {groups[0].reference.split(' (')[0]}" if relative else "Time (seconds)")
