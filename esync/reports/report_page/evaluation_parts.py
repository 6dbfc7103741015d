"""Tables of the parts of a run's evaluations over time, such as the recall of each class."""

from ...runtime.evaluation_result import RECALL
from ...runtime.terminal import UNKNOWN
from ..metrics_table import RunFigures
from ..tables import duration
from .content import Cell, Table

#: Most evaluations that have a column.
EVALUATIONS = 8
#: Number of the shades of cells.
SHADES = 5


def parts_table(label: str, figures: RunFigures) -> Table | None:
    """Return the parts of evenly spaced evaluations, up to the last one, and the highest of all; None without parts.

    Args:
        label: heading of the first column.
        figures: of the run.
    """
    if not figures.parts:
        return None
    last, count = len(figures.times) - 1, min(EVALUATIONS, len(figures.times))
    shown = [last * (index + 1) // count for index in range(count)]
    rows: list[list[str | Cell]] = []
    for name, values in figures.parts.items():
        numbers = [value for value in values if value is not None]
        rows.append(
            [name, *(_cell(name, value) for value in [*(values[i] for i in shown), max(numbers, default=None)])]
        )
    return Table(
        [label, *(f"after {duration(figures.times[index])}" for index in shown), "highest"],
        rows,
        note=f"{count} of {last + 1:,} evaluations are shown." if count <= last else "",
    )


def _cell(name: str, value: float | None) -> Cell:
    if value is None:
        return Cell(UNKNOWN)
    shaded = name.startswith(RECALL) and 0 <= value <= 1
    return Cell(f"{value:.3g}", shade=min(int(value * SHADES), SHADES - 1) if shaded else None)
