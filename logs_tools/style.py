"""How an algorithm looks in every figure.

One colour, one line style and one marker per algorithm (the palette of Okabe and Ito, which colour-blind readers can
tell apart, as far as it goes). A run whose emulation was not valid is grey and says why.
"""

from typing import Any

from matplotlib.colors import to_hex, to_rgb

from logs_tools.comparison import RunFigures
from logs_tools.modes import STANDALONE

COLOURS = {
    "ESync": "#0072B2",
    "Local SGD": "#56B4E9",
    "DiLoCo": "#882255",
    "DyLU": "#999933",
    "SSP": "#44AA99",
    "SSGD": "#E69F00",
    "ASGD": "#009E73",
    "DC-ASGD": "#CC79A7",
    "Sync-Switch": "#D55E00",
    "GD-async": "#B2A800",
    "DGC-async": "#7A4B1E",
    "DGS": "#F0E442",
    STANDALONE: "#000000",
}
LINES = {
    "ESync": "-",
    "Local SGD": (0, (6, 1)),
    "DiLoCo": (0, (4, 1, 1, 1)),
    "DyLU": (0, (4, 2, 1, 2)),
    "SSP": (0, (1, 1)),
    "SSGD": "--",
    "ASGD": "-.",
    "DC-ASGD": (0, (5, 1, 1, 1, 1, 1)),
    "Sync-Switch": (0, (8, 2)),
    "GD-async": (0, (2, 1)),
    "DGC-async": (0, (2, 2)),
    "DGS": (0, (3, 1, 1, 1, 1, 1, 1, 1)),
    STANDALONE: ":",
}
MARKERS = {
    "ESync": "o",
    "Local SGD": "<",
    "DiLoCo": ">",
    "DyLU": "p",
    "SSP": "d",
    "SSGD": "s",
    "ASGD": "^",
    "DC-ASGD": "D",
    "Sync-Switch": "P",
    "GD-async": "X",
    "DGC-async": "h",
    "DGS": "*",
    STANDALONE: "v",
}
INVALID = "#9A9A9A"
LEGEND = "#555555"  # of what a legend explains for all algorithms at once
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
}
FORMATS = ("png", "pdf")


def colour(run: RunFigures) -> str:
    """Return the colour of the run's algorithm, or grey."""
    return INVALID if run.invalid else COLOURS[run.mode.method]


def pale(shade: str) -> str:
    """Mix a colour with white; unlike transparency this hides the grid behind it."""
    red, green, blue = (0.45 * part + 0.55 for part in to_rgb(shade))
    return to_hex((red, green, blue))


def label(text: str, run: RunFigures, separator: str = " ") -> str:
    """Add to a text why the run is not valid, if it is not."""
    return f"{text}{separator}({run.invalid})" if run.invalid else text
