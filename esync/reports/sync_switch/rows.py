"""Read a CSV file of a run (acc.csv, loss.csv, …), whose columns may have any order."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from ..metrics import MAX_NUMBER

WALL, STEP, VALUE, TIME = "Wall time", "Step", "Value", "Time"


class UnusableRunError(ValueError):
    """Raised for a run that is left out; the message says why."""


@dataclass(frozen=True)
class CsvRow:
    """A measurement.

    Attributes:
        wall: seconds since 1970.
        step: the global step, which counts rounds of BSP and commits of ASP.
        value: the accuracy or the loss, which may be NaN or infinite if the run has diverged.
        time: seconds since the first row, without the gaps of switches; None if the file has no
            such column.
    """

    wall: float
    step: int
    value: float
    time: float | None


def read_rows(path: Path) -> list[CsvRow]:
    """Return the rows of a file in their order, without those that have no value.

    Published files have their columns in ten different orders, sometimes with one more at the end
    that has no name, CRLF or LF, and sometimes hundreds of empty rows after the last one. "Raw
    Time" and "Relative time (s)" repeat the wall times.

    Raises:
        UnusableRunError: a column is missing, or a row cannot be understood.
        OSError: the file cannot be read.
    """
    reader = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig", errors="replace"), newline=""))
    heading = [name.strip() for name in next(reader, [])]
    missing = [name for name in (WALL, STEP, VALUE) if name not in heading]
    if missing:
        raise UnusableRunError(f"{path}: no column {', '.join(missing)} in its first line")
    places = {name: heading.index(name) for name in (WALL, STEP, VALUE, TIME) if name in heading}
    rows = []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        try:
            numbers = {name: float(cells[column]) for name, column in places.items()}
            step = int(numbers[STEP])
        except (ValueError, IndexError, OverflowError):
            raise UnusableRunError(f"{path}, line {reader.line_num}: {','.join(cells)!r} should hold numbers") from None
        for name in (WALL, STEP, TIME):
            if not 0 <= numbers.get(name, 0.0) <= MAX_NUMBER:
                raise UnusableRunError(
                    f"{path}, line {reader.line_num}: {name} should be a number from 0 to {MAX_NUMBER:g}"
                )
        rows.append(CsvRow(numbers[WALL], step, numbers[VALUE], numbers.get(TIME)))
    if not rows:
        raise UnusableRunError(f"{path}: no row in it")
    return rows
