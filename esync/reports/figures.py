"""Draw the five figures: each function returns a Matplotlib figure of runs, which `save` writes."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..runtime.files import write_atomically
from .metrics_table import DeviceFigures, RunFigures
from .published_results import ACCURACY, END, PublishedRun
from .speedups import best_alone
from .style import FORMATS, LEGEND, NON_IID_HATCH, STYLE, TICK_WIDTH, TITLE_WIDTH, colour, label, pale

MARKED_POINTS = 60  # largest number of evaluations of a curve that are all marked
BAR = 0.38  # width of a bar, relative to a method's place
NOTHING: Mapping[str, PublishedRun] = MappingProxyType({})
PUBLISHED = "1 − aggregation ÷ total, as published"


def accuracy(
    network: str,
    runs: Sequence[RunFigures],
    standalone: RunFigures | None,
    target: float | None,
    as_published: bool = False,
    published: Mapping[str, PublishedRun] = NOTHING,
) -> Figure:
    """Draw test accuracy, or another metric, over time.

    All runs have the same metric and the same kind of data. Sequential SGD has a level line at its
    final accuracy, as in the published figures.

    Args:
        network: name for the title.
        runs: the runs, with every evaluation as it was logged unless they are smoothed.
        standalone: sequential SGD on one device; None if there is no run.
        target: value of the metric for a level line; None for none.
        as_published: whether the runs are smoothed as in the published figures. If not, sequential
            SGD has its curve, too.
        published: published results of these modes, by the name of the mode's folder, to be marked.
    """
    metric = runs[0].metric
    kind = "i.i.d." if runs[0].mode.iid else "non-i.i.d."
    alone = [standalone] if standalone and len(standalone.times) > 1 and not as_published else []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 5.2), layout=layout())
        axes = figure.subplots()
        last = [run.times[-1] for run in (*runs, *alone)]
        unit, seconds = time_unit(max([*last, END] if published else last))
        for run in (*runs, *alone):
            axes.plot(
                [time / seconds for time in run.times],
                run.accuracies,
                color=colour(run),
                linestyle=run.mode.style.line,
                linewidth=1.8,
                marker=run.mode.style.marker if len(run.times) <= MARKED_POINTS else None,
                markersize=4,
                label=label(run.mode.method, run),
            )
        if standalone and standalone.final_accuracy is not None:
            axes.axhline(
                standalone.final_accuracy,
                color=standalone.mode.style.color,
                linestyle=standalone.mode.style.line,
                linewidth=0.9 if alone else 1.6,
                label=label(f"{standalone.mode.method}, final ({metric.text(standalone.final_accuracy)})", standalone),
            )
        if target is not None:
            axes.axhline(target, color="#777777", linewidth=0.9, label=f"target {target:g}")
        _mark_published(axes, (*runs, *([standalone] if standalone else [])), published, seconds)
        axes.set(
            xlim=(0, None),
            xlabel=f"Time ({unit})",
            ylabel=metric.title,
            title=f"{metric.title} over time, {network}, {kind} data{', smoothed' if as_published else ''}",
        )
        if metric.is_accuracy:
            axes.set_ylim(0, 1)
        handles, _ = axes.get_legend_handles_labels()
        figure.legend(handles=handles, loc="outside lower center", ncols=2 if len(handles) == 4 else 3)
        return figure


def _mark_published(
    axes: Axes, runs: Sequence[RunFigures], published: Mapping[str, PublishedRun], seconds: float
) -> None:
    """Mark the published results of these runs: the time to an accuracy, and the final accuracy."""
    marked = [(run, published[run.mode.folder]) for run in runs if run.mode.folder in published]
    for run, result in marked:
        points = [(END, result.final_accuracy)]
        if result.reached is not None:
            points.append((result.reached, ACCURACY))
        axes.plot(
            [time / seconds for time, _ in points],
            [value for _, value in points],
            color=run.mode.style.color,
            linestyle="",
            marker=run.mode.style.marker,
            markersize=10,
            markerfacecolor="none",
            markeredgewidth=1.8,
            clip_on=False,
        )
    if marked:
        axes.plot([], [], "o", color=LEGEND, markersize=10, markerfacecolor="none", label="published")


def throughput(network: str, runs: Sequence[RunFigures]) -> Figure:
    """Draw the samples per second of all devices together, and the sum of their speeds if known."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_bars_size(runs), layout=layout())
        axes = figure.subplots()
        bars = [(run, position) for run, position in _positions(axes, runs) if run.throughput is not None]
        handles = _kinds(runs)
        for run, position in bars:
            note = run.bracketed(f"{run.throughput:,.0f}")
            if run.efficiency is not None:
                note += "\n" + run.bracketed(f"{100 * run.efficiency:.0f} %")
            near_limit = (run.efficiency or 0.0) > 0.75  # above the bar, the note would overlap the limit's line
            _bar(axes, run, position, [run.throughput or 0.0], note, inside=near_limit)
            if run.speed_limit is not None:
                axes.hlines(run.speed_limit, position - 0.45 * BAR, position + 0.45 * BAR, color="black", linewidth=1.6)
        alone = best_alone(runs)
        if alone is not None and alone.throughput is not None:
            line = axes.axhline(alone.throughput, linewidth=1.2, zorder=0.5, linestyle=alone.mode.style.line)
            line.set(color=colour(alone), label=label(f"{alone.mode.method}: one device alone", alone))
            handles.append(line)
        if any(run.speed_limit is not None for run, _ in bars):
            handles.append(Line2D([], [], color="black", linewidth=1.6, label="100 %: sum of the devices' speeds"))
        _finish(figure, axes, handles, "Throughput (samples per second)", f"Data throughput, {network}")
        return figure


def traffic(network: str, runs: Sequence[RunFigures]) -> Figure:
    """Draw the bytes per second of all workers together: sent ones, and received ones on top."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_bars_size(runs), layout=layout())
        axes = figure.subplots()
        handles = _kinds(runs)
        for run, position in _positions(axes, [run for run in runs if run.bytes_sent is not None]):
            parts = [(run.bytes_sent or 0.0) / 1e6] + ([] if run.bytes_received is None else [run.bytes_received / 1e6])
            note = run.bracketed(f"{sum(parts):,.1f}") + ("\nestimated" if run.bytes_estimated else "")
            _bar(axes, run, position, parts, note)
        if any(run.bytes_received is not None for run in runs):
            handles.append(Patch(facecolor=LEGEND, label="sent"))
            handles.append(Patch(facecolor=pale(LEGEND), label="received"))
        if any(run.bytes_estimated for run in runs):
            handles.append(Line2D([], [], linestyle="", label="estimated: one push of the model a round, no pull"))
        _finish(figure, axes, handles, "Traffic (MB per second)", f"Traffic of all workers, {network}")
        return figure


def computing_ratio(network: str, runs: Sequence[RunFigures]) -> Figure:
    """Draw the computing time ratio, and its value by the published formula: one panel per run, one bar per device."""
    devices = _all_devices(runs)
    kinds = [kind for kind in (True, False) if any(run.mode.iid == kind for run in runs)]
    columns = max(sum(run.mode.iid == kind for run in runs) for kind in kinds)
    with mpl.rc_context(STYLE):
        names = 0.8 + 0.09 * max(len(name) for name in devices)  # inches
        size = (names + 2.3 * columns, 1.5 + len(kinds) * (1.0 + 0.3 * len(devices)))
        figure = Figure(figsize=size, layout=layout())
        grid = figure.subplots(len(kinds), columns, sharey=True, squeeze=False)
        for row, kind in zip(grid, kinds, strict=True):
            shown = [run for run in runs if run.mode.iid == kind]
            for axes, run in zip(row, shown, strict=False):
                _ratio_panel(axes, run, devices)
            for axes in row[len(shown) :]:
                axes.set_visible(False)
        figure.suptitle(f"Computing time ratio of each device, {network}", fontsize=12)
        handles = [
            Patch(facecolor=LEGEND, label="computing, as logged"),
            Line2D([], [], color="black", marker="|", linestyle="", markersize=9, markeredgewidth=2, label=PUBLISHED),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and PDF; the same figure gives the same bytes.

    Raises:
        OSError: a file cannot be written.
    """
    paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
    for path in paths:
        save_as(figure, path)
    return paths


def save_as(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's ending names; the same one gives the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    suffix = path.suffix[1:].lower()
    content = io.BytesIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": "esync"}):
        figure.savefig(content, format=suffix, metadata=undated.get(suffix))
    write_atomically(path, content.getvalue())


def layout() -> ConstrainedLayoutEngine:
    """Return a layout with some space at the edges and between panels."""
    return ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.04)


def _bars_size(runs: Sequence[RunFigures]) -> tuple[float, float]:
    """Return the size in inches at which the notes above the bars have enough space."""
    return max(7.0, 1.5 + 1.3 * len(runs)), 4.8


def _positions(axes: Axes, runs: Sequence[RunFigures]) -> list[tuple[RunFigures, float]]:
    """Label the x axis with the methods; return each run with the position of its bar.

    Runs of one method on i.i.d. and on other data are side by side.
    """
    methods = {run.mode.method: textwrap.fill(run.mode.method, TICK_WIDTH) for run in runs}
    axes.set_xticks(range(len(methods)), list(methods.values()))
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.grid(axis="x", visible=False)
    placed = []
    for index, method in enumerate(methods):
        members = [run for run in runs if run.mode.method == method]
        placed += [(run, index + (slot - (len(members) - 1) / 2) * (BAR + 0.06)) for slot, run in enumerate(members)]
    return placed


def _bar(axes: Axes, run: RunFigures, position: float, parts: Sequence[float], note: str, inside: bool = False) -> None:
    """Draw the parts of one run's bar, and a note above it or inside its uppermost part."""
    bottom = 0.0
    for part, shade in zip(parts, (colour(run), pale(colour(run))), strict=False):
        hatch = None if run.mode.iid else NON_IID_HATCH
        axes.bar(position, part, BAR, bottom, facecolor=shade, edgecolor="white", linewidth=0, hatch=hatch)
        bottom += part
    if run.invalid:
        note += "\n" + run.invalid.replace(": ", ":\n")
    offset, alignment = (-5, "top") if inside else (3, "bottom")
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5} if inside else None
    axes.annotate(
        note,
        (position, bottom),
        (0, offset),
        textcoords="offset points",
        ha="center",
        va=alignment,
        fontsize=9,
        bbox=box,
    )


def _kinds(runs: Sequence[RunFigures]) -> list[Patch | Line2D]:
    """Return the legend of the two kinds of data, or nothing if only one is shown."""
    if len({run.mode.iid for run in runs}) < 2:
        return []
    return [
        Patch(facecolor=LEGEND, label="i.i.d. data"),
        Patch(facecolor=LEGEND, edgecolor="white", hatch=NON_IID_HATCH, linewidth=0, label="non-i.i.d. data"),
    ]


def _finish(figure: Figure, axes: Axes, handles: list[Patch | Line2D], ylabel: str, title: str) -> None:
    axes.set(ylabel=ylabel, title=title)
    axes.margins(y=0.22)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _ratio_panel(axes: Axes, run: RunFigures, devices: list[str]) -> None:
    """Draw one run's devices from top to bottom, with empty rows for devices that it lacks."""
    places = {name: row for row, name in enumerate(devices)}
    for device in run.devices:
        row = places[device.name]
        if device.computing_ratio is not None:
            axes.barh(row, device.computing_ratio, 0.7, color=colour(run))
        if device.published_computing_ratio is not None:
            axes.plot(device.published_computing_ratio, row, "|", color="black", markersize=9, markeredgewidth=2)
    axes.set_title(label(run.mode.label, run, "\n", TITLE_WIDTH), fontsize=11)
    axes.set(xlim=(0, 1), ylim=(len(devices) - 0.4, -0.6))
    axes.set_xlabel("share of total time", fontsize=10)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    axes.set_yticks(range(len(devices)), devices)
    axes.grid(axis="y", visible=False)


def _all_devices(runs: Sequence[RunFigures]) -> list[str]:
    """Return the devices of all runs, with those of one host together."""
    devices: dict[str, dict[str, DeviceFigures]] = {}
    for run in runs:
        for device in run.devices:
            devices.setdefault(device.host, {})[device.name] = device
    return [name for group in devices.values() for name in group]


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit of a time axis: its name, and its length in seconds."""
    if seconds < 300:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 6 * 3600 else ("hours", 3600.0)
