"""Elements of a report, with computed values and texts: titles, tables, curves, timelines.

Texts may be untrusted; the templates escape them. Times are in seconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..phases import Block

#: Format of a chart's values: share in per cent, accuracy, another metric of any sign, amount ≥ 0, bytes
#: per second.
Format = Literal["share", "accuracy", "metric", "number", "rate"]


@dataclass(frozen=True)
class LineStyle:
    """Colour and dashes of a curve, which are also those of its key.

    Attributes:
        color: as #rrggbb.
        dash: lengths of dashes and gaps in pixels; empty for a solid line.
    """

    color: str
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A curve, or the mean of several runs with a band of ± one standard deviation.

    Attributes:
        label: name in the key.
        style: colour and dashes.
        x: ascending x coordinates of the points.
        y: values; None leaves a gap.
        low, high: edges of the band; empty without one.
    """

    label: str
    style: LineStyle
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


@dataclass(frozen=True)
class Chart:
    """Curves over time or over rounds.

    Attributes:
        title: heading.
        form: how its values are written.
        curves: the curves by axis, "time" or "rounds"; where both are given, the reader chooses.
        note: text below the chart, for instance what was thinned.
        target: value that is marked by a line; None for none.
    """

    title: str
    form: Format
    curves: Mapping[Literal["time", "rounds"], Sequence[Curve]]
    note: str = ""
    target: float | None = None


@dataclass(frozen=True)
class Charts:
    """Charts side by side."""

    template: ClassVar = "charts.html"
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Lane:
    """The rounds of one device in the order of time."""

    name: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Timeline:
    """Devices of one run side by side.

    Attributes:
        title: heading, which names the run.
        lanes: its devices.
        note: what was merged or left out; "" if nothing was.
        begin, end: the period shown.
        unit: what the numbers of its blocks count; asynchronous: exchanges of the device.
    """

    template: ClassVar = "figure.html"
    title: str
    lanes: Sequence[Lane]
    note: str
    begin: float
    end: float
    unit: Literal["round", "exchange"] = "round"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: its text.
        small: a second, smaller line.
        style: the style of a curve whose key stands before the text.
        shares: computing, waiting and transferring as shares of a time, drawn as a bar.
        shade: colour of the cell, 0 to 4; 0 is the strongest (page.css).
    """

    text: str
    small: str = ""
    style: LineStyle | None = None
    shares: tuple[float, float, float] | None = None
    shade: int | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def bar(self) -> Iterator[tuple[str, str, str]]:
        """Name, begin and width of each part of the bar, which is 120 wide."""
        begin = 0.0
        for name, share in zip(("compute", "wait", "exchange"), self.shares or (), strict=True):
            width = 120 * min(max(share, 0.0), 1.0)
            yield name, f"{begin:.1f}", f"{width:.1f}"
            begin += width


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    Attributes:
        columns: titles.
        rows: cells, as texts where they are nothing but that.
        text_columns: number of columns, from the first on, that hold words; the others are
            right-aligned.
        note: text below it.
    """

    template: ClassVar = "table.html"
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    text_columns: int = 1
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with tables, charts, timelines and paragraphs below it.

    Attributes:
        title: heading.
        parts: what stands below it, in this order.
        folded: whether it is closed at first; it is open in print.
    """

    title: str
    parts: Sequence["str | Table | Charts | Timeline | Events"]
    folded: bool = False


@dataclass(frozen=True)
class Events:
    """What happened: pairs of when and what."""

    template: ClassVar = "events.html"
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Tile:
    """A figure at the top of the page."""

    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that a page shows.

    Attributes:
        title: heading, and title of the window.
        subtitle: line below it.
        verdict: sentences with the result.
        warnings: what makes figures invalid or incomplete.
        tiles: the most important figures; empty for a comparison.
        sections: the rest.
        colophon: when and by which version it was made.
    """

    title: str
    subtitle: str
    verdict: Sequence[str]
    warnings: Sequence[str]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    colophon: str


def as_json(value: Any) -> Any:
    """Return charts and timelines in the short form that the page's script reads."""
    match value:
        case Chart():
            return {
                "kind": "chart",
                "title": value.title,
                "form": value.form,
                "target": value.target,
                "curves": {axis: [as_json(curve) for curve in curves] for axis, curves in value.curves.items()},
            }
        case Curve():
            band = {"low": [*map(_short, value.low)], "high": [*map(_short, value.high)]} if value.low else {}
            return {
                "label": value.label,
                "color": value.style.color,
                "dash": list(value.style.dash),
                "x": [*map(_short, value.x)],
                "y": [*map(_short, value.y)],
                **band,
            }
        case Timeline():
            return {
                "kind": "timeline",
                "title": value.title,
                "begin": _short(value.begin),
                "end": _short(value.end),
                "unit": value.unit,
                "lanes": [{"name": lane.name, "blocks": [*map(_block, lane.blocks)]} for lane in value.lanes],
            }
    raise TypeError(f"nothing draws {value!r}")


def _block(block: Block) -> list[float | None]:
    times = (block.begin, block.end, block.compute, block.wait, block.exchange)
    return [block.first, block.last, *map(_short, times)]


def _short(value: float | None) -> float | None:
    """Return a value with the six digits that a chart can show at most."""
    return None if value is None else float(f"{value:.6g}")
