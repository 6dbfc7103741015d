"""Styles of algorithms in figures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """The style of an algorithm in every figure.

    Attributes:
        color: as Matplotlib knows it, "#0072B2" for instance.
        line: Matplotlib's line style: "-", "--", or (offset, (on, off, …)) in points.
        marker: Matplotlib's marker.
    """

    color: str
    line: str | tuple[int, tuple[int, ...]] = "-"
    marker: str = "o"


#: Styles of algorithms that define none, chosen by their names (the colours of Tol's scheme
#: "bright", and more).
SPARE_STYLES = tuple(
    Style(color, line, marker)
    for color, line, marker in (
        ("#4477AA", (0, (7, 1, 1, 1)), "H"),
        ("#EE6677", (0, (3, 1)), "8"),
        ("#228833", (0, (5, 2, 2, 2)), "x"),
        ("#AA3377", (0, (9, 1)), "+"),
        ("#66CCEE", (0, (1, 2)), "1"),
        ("#BBBB44", (0, (6, 2, 1, 2)), "2"),
    )
)


def spare_style(name: str) -> Style:
    """Return the style of an algorithm that defines none."""
    return SPARE_STYLES[sum(name.encode(errors="replace")) % len(SPARE_STYLES)]
