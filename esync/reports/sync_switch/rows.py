"""Read a CSV file of a run (acc.csv, loss.csv, …): rows of wall time, step and value, in any order of columns."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from ..metrics import MOST

WALL, STEP, VALUE, TIME = "Wall time", "Step", "Value", "Time"


class RowsError(ValueError):
    """The file holds no such rows; the message says why."""


@dataclass(frozen=True)
class CsvRow:
    """One measurement.

    Attributes:
        wall: seconds since 1970.
        step: the global step: one per round of BSP, one per commit of ASP.
        value: the accuracy or the loss; may be NaN or infinite where a run has diverged.
        time: seconds since the first row with the gaps of switches left out; None where the file
            has no such column.
    """

    wall: float
    step: int
    value: float
    time: float | None


def read_rows(path: Path) -> list[CsvRow]:
    """Return the rows of a file in their order; rows without any value are left out.

    Published files have their columns in ten different orders, one more without a name at the end,
    CRLF or LF, and sometimes hundreds of empty rows behind the last one. "Raw Time" and "Relative
    time (s)" are wall times once more.

    Raises:
        RowsError: a column is missing, or a row cannot be understood.
        OSError: it cannot be read.
    """
    reader = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig", errors="replace"), newline=""))
    heading = [name.strip() for name in next(reader, [])]
    missing = [name for name in (WALL, STEP, VALUE) if name not in heading]
    if missing:
        raise RowsError(f"{path}: no column {', '.join(missing)} in its first line")
    places = {name: heading.index(name) for name in (WALL, STEP, VALUE, TIME) if name in heading}
    rows = []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        try:
            numbers = {name: float(cells[place]) for name, place in places.items()}
            step = int(numbers[STEP])
        except (ValueError, IndexError, OverflowError):
            raise RowsError(f"{path}, line {reader.line_num}: {','.join(cells)!r} should hold numbers") from None
        for name in (WALL, STEP, TIME):
            if not 0 <= numbers.get(name, 0.0) <= MOST:
                raise RowsError(f"{path}, line {reader.line_num}: {name} should be a number from 0 to {MOST:g}")
        rows.append(CsvRow(numbers[WALL], step, numbers[VALUE], numbers.get(TIME)))
    if not rows:
        raise RowsError(f"{path}: no row in it")
    return rows
