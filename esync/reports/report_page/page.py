"""Write a report as one HTML file that loads nothing and lets nothing out.

Style, script, icon and figures are in the file. A Content-Security-Policy in the page itself allows
only that script and that style, by their digests, so that a browser would refuse whatever a text
from a log might bring along.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from ... import web
from .content import Cell, Chart, Events, LineStyle, Report, Section, Table, Tile, Timeline, as_json

_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_UNKNOWN_COLOR = "#777777"
#: Number of the shades of cells; page.css has their colours.
SHADES = 5


def report_html(report: Report) -> str:
    """Return the page."""
    drawn: list[Chart | Timeline] = []  # in the order of their places in the page
    sections = "\n".join(_section(number, section, drawn) for number, section in enumerate(report.sections))
    parts = {
        "policy": content_security_policy(),
        "title": escape(report.title),
        "subtitle": escape(report.subtitle),
        "style": _style(),
        "icon": _icon(),
        "warnings": _warnings(report.warnings),
        "tiles": _tiles(report.tiles),
        "verdict": "".join(f"<p>{escape(sentence)}</p>" for sentence in report.verdict),
        "sections": sections,
        "colophon": escape(report.colophon),
        "figures": _json([as_json(drawing) for drawing in drawn]),
        "script": _script(),
    }
    # One pass, so that nothing in a text is taken for the name of a part.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


@cache
def content_security_policy() -> str:
    """Return the policy that allows a report's own style and script, and nothing else."""
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (_script(), _style())
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; "
        "form-action 'none'"
    )


# --- the parts of the file ------------------------------------------------------------------------


@cache
def _read(name: str) -> str:
    return (files(__package__) / "template" / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return (files(web) / "look.css").read_text(encoding="utf-8") + _read("page.css")


@cache
def _script() -> str:
    """Return the shared modules and the page's own script as one, because one file imports nothing."""
    modules = [(files(web) / name).read_text(encoding="utf-8") for name in ("dom.js", "format.js")]
    return re.sub(r"^export ", "", "\n".join([*modules, _read("page.js")]), flags=re.MULTILINE)


@cache
def _icon() -> str:
    icon = (files(web) / "icon.svg").read_text(encoding="utf-8").strip()
    return icon.replace("<svg ", '<svg width="24" height="24" aria-hidden="true" ', 1)


def _json(content: object) -> str:
    r"""Return JSON for a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


# --- what stands in the page ----------------------------------------------------------------------


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return (
        '<section class="card warnings" aria-labelledby="warnings"><h2 id="warnings">Warnings</h2>'
        f"<ul>{items}</ul></section>"
    )


def _tiles(tiles: Sequence[Tile]) -> str:
    if not tiles:
        return ""
    shown = "".join(
        f"<div><dt>{escape(tile.name)}</dt><dd>{escape(tile.value)} <small>{escape(tile.unit)}</small></dd>"
        f'<dd class="note">{escape(tile.note)}</dd></div>'
        for tile in tiles
    )
    return f'<dl class="tiles">{shown}</dl>'


def _section(number: int, section: Section, drawn: list[Chart | Timeline]) -> str:
    name = f"section-{number}"
    parts: list[str] = []
    charts: list[str] = []
    for part in section.parts:
        if isinstance(part, Chart):
            charts.append(_figure(part, drawn))
            continue
        parts += _side_by_side(charts)
        charts = []
        parts.append(_part(part, section, drawn))
    parts += _side_by_side(charts)
    body, title = "\n".join(parts), escape(section.title)
    if section.folded:
        return (
            f'<section class="card"><details class="section"><summary><h2 id="{name}">{title}</h2></summary>'
            f"{body}</details></section>"
        )
    return f'<section class="card" aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{body}</section>'


def _side_by_side(charts: Sequence[str]) -> list[str]:
    return [f'<div class="curves">{"".join(charts)}</div>'] if charts else []


def _part(part: str | Table | Timeline | Events, section: Section, drawn: list[Chart | Timeline]) -> str:
    match part:
        case str():
            return f'<p class="muted">{escape(part)}</p>'
        case Table():
            return _table(part, f"{section.title}: {part.columns[0]}, table")
        case Events():
            rows = "".join(
                f"<li><span>{escape(when)}</span><span>{escape(text)}</span></li>" for when, text in part.rows
            )
            return f'<ol class="events" role="list">{rows}</ol>'
        case Timeline():
            return _figure(part, drawn)


def _figure(part: Chart | Timeline, drawn: list[Chart | Timeline]) -> str:
    """Return the place of a chart, which the script fills, with its heading and its note."""
    note = f'<p class="note muted">{escape(part.note)}</p>' if part.note else ""
    drawn.append(part)
    return (
        f'<figure class="chart" data-figure="{len(drawn) - 1}"><figcaption><h3>{escape(part.title)}</h3></figcaption>'
        f'<p class="none">This chart needs JavaScript; the tables do not.</p>{note}</figure>'
    )


def _table(table: Table, label: str) -> str:
    def words(index: int, shade: float | None = None) -> str:
        names = ["number"] if index >= table.text_columns else []
        if shade is not None:
            names.append(f"shade-{min(int(shade * SHADES), SHADES - 1)}")
        return f' class="{" ".join(names)}"' if names else ""

    head = "".join(f'<th scope="col"{words(index)}>{escape(title)}</th>' for index, title in enumerate(table.columns))
    rows = []
    for row in table.rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        first, *rest = cells
        body = "".join(f"<td{words(index, cell.shade)}>{_cell(cell)}</td>" for index, cell in enumerate(rest, 1))
        rows.append(f'<tr><th scope="row">{_cell(first)}</th>{body}</tr>')
    note = f'<p class="note muted">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{note}"
    )


def _cell(cell: Cell) -> str:
    key = _key(cell.style) if cell.style else ""
    small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
    return f"{key}{escape(cell.text)}{small}{_bar(cell.shares) if cell.shares else ''}"


def _bar(shares: tuple[float, float, float]) -> str:
    """Return a bar of computing, waiting and transferring; waiting is thinner, as in timelines."""
    offset, parts = 0.0, []
    for name, share, top, height in zip(("compute", "wait", "exchange"), shares, (0, 3, 0), (10, 4, 10), strict=True):
        width = 120 * min(max(share, 0.0), 1.0)
        parts.append(f'<rect class="{name}" x="{offset:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>')
        offset += width
    return f'<svg class="bar" viewBox="0 0 120 10" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def _key(style: LineStyle) -> str:
    """Return a short line in the style of a curve."""
    color = style.color if _COLOR.fullmatch(style.color) else _UNKNOWN_COLOR
    dash = " ".join(f"{length:g}" for length in style.dash)
    return (
        '<svg class="swatch" width="26" height="10" aria-hidden="true"><line x1="1" y1="5" x2="25" y2="5" '
        f'stroke="{color}" stroke-width="3" stroke-dasharray="{dash}"/></svg>'
    )
