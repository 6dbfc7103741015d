"""Style of each algorithm in all figures.

Each algorithm has one colour, line style and marker, chosen by its class or its runs. A run with an
invalid emulation is grey, with the reason.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..algorithms.registry import ALGORITHMS
from ..algorithms.styles import SPARE_STYLES, Style
from .metrics_table import RunFigures
from .modes import Mode
from .summary_file import AlgorithmInfo

INVALID = "#9a9a9a"
LEGEND = "#555555"  # colour of legend entries that apply to all algorithms
NON_IID_HATCH = "///"

STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "pdf.fonttype": 42,  # text stays text in the PDF
    "savefig.dpi": 160,
    "text.parse_math": False,  # a "$" in a label is a dollar
}
FORMATS = ("png", "pdf")
LEGEND_WIDTH, TICK_WIDTH, TITLE_WIDTH = 28, 16, 26  # characters per line


def style_of(info: AlgorithmInfo, otherwise: Style) -> Style:
    """Return the style that a run gives its algorithm; what is missing is that of `otherwise`."""
    fields = info.style.model_dump(exclude_none=True)
    style = replace(otherwise, **fields)
    return plain(style) if "color" in fields else style


def _hex(color: str) -> str | None:
    """Return a colour as #rrggbb; None if it is invalid, or is a name and Matplotlib is not installed."""
    if re.fullmatch("#[0-9a-fA-F]{6}", color):
        return color.lower()
    try:
        from matplotlib.colors import is_color_like, to_hex
    except ModuleNotFoundError:
        return None
    return to_hex(color) if is_color_like(color) else None


def _rgb(color: str) -> tuple[float, ...]:
    """Return the shares of red, green and blue of a colour written as #rrggbb."""
    return tuple(part / 255 for part in bytes.fromhex(color[1:]))


def distinguishable(modes: Sequence[Mode]) -> list[Mode]:
    """Give every algorithm, and every named run of it, a unique label and style.

    If two are equal, the later one gets a spare style, or its name after its label. Built-in algorithms
    come first, and their labels are reserved even if they are not shown.
    """
    owners = {algorithm.label.casefold(): (name, "") for name, algorithm in ALGORITHMS.items()}
    labels: dict[tuple[str, str], str] = {}
    styles: dict[tuple[str, str], Style] = {}
    for mode in sorted(modes, key=lambda mode: (not mode.built_in, bool(mode.run), mode.place())):
        key = mode.name, mode.run
        if key in labels:
            continue
        label = mode.method
        while owners.setdefault(label.casefold(), key) != key:
            label += f" ({mode.name})"
        labels[key] = label
        styles[key] = _unlike(plain(mode.style), list(styles.values()))
    return [replace(mode, method=labels[mode.name, mode.run], style=styles[mode.name, mode.run]) for mode in modes]


def _unlike(style: Style, others: Sequence[Style]) -> Style:
    """Return the style if its colour is unused, otherwise the spare style that differs most from the others.

    If all colours are used, only lines and markers differ, as far as possible.
    """
    colours = {other.color for other in others} | {INVALID}
    spare = [plain(spare_style) for spare_style in SPARE_STYLES]
    if style.color not in colours:
        return style
    if free := [spare_style for spare_style in spare if spare_style.color not in colours]:
        return max(free, key=lambda spare_style: min(_distance(spare_style.color, other.color) for other in others))

    mixed = [replace(other, color=colored.color) for other in spare for colored in spare]
    return next((candidate for candidate in mixed if candidate not in others), style)


def _distance(first: str, second: str) -> float:
    """Return the distance of two colours in RGB."""
    return math.dist(_rgb(first), _rgb(second))


def plain(style: Style) -> Style:
    """Return a style whose colour is written as #rrggbb, so that equal colours compare equal."""
    return replace(style, color=_hex(style.color) or INVALID)


def colour(run: RunFigures) -> str:
    """Return the colour of the run's algorithm, or grey if the run is not valid."""
    return INVALID if run.invalid else run.mode.style.color


def pale(shade: str) -> str:
    """Mix a colour with white; unlike transparency, that hides the grid behind it."""
    return "#" + "".join(f"{round(255 * (0.45 * part + 0.55)):02x}" for part in _rgb(shade))


def label(text: str, run: RunFigures, separator: str = " ", width: int = LEGEND_WIDTH) -> str:
    """Return a wrapped label, followed by the reason if the run is not valid."""
    text = textwrap.fill(text, width)
    # Matplotlib leaves texts that begin with "_" out of legends.
    text = f" {text}" if text.startswith("_") else text
    return f"{text}{separator}({run.invalid})" if run.invalid else text
