"""Terminal output of the tools: tables, the formatting of figures, one-line errors.

Status and errors go to standard error, results to standard output.
"""

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from .output import printable

#: In the place of a figure that nobody knows.
NOT_KNOWN = "–"


def right(title: str, footer: str = "") -> Column:
    """Return a column of figures, which are aligned on the right."""
    return Column(title, footer, justify="right")


class TerminalTable(Table):
    """A table in the style that all programs share. Its texts are shown as they are, not read as rich's markup.

    Args:
        columns: titles, or columns with more to say of them.
        title: stands above the table.
        footer: whether the columns have footers.
    """

    def __init__(self, *columns: str | Column, title: str | None = None, footer: bool = False) -> None:
        style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
        super().__init__(*columns, title=title, title_justify="left", show_footer=footer, **style)

    def add(self, *cells: str | Text, style: str | None = None) -> None:
        """Add a row.

        Args:
            cells: one for each column.
            style: of the whole row, in rich's words.
        """
        self.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), style=style)


def markdown(columns: Sequence[str | Column], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, padded so that it can be read as it is, at its natural width."""
    table = Table(*columns, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*(Text(cell.replace("|", r"\|")) for cell in row))
    output = io.StringIO()
    Console(file=output, width=1000, color_system=None, highlight=False, markup=False, emoji=False).print(table)
    return "".join(f"{line.strip()}\n" for line in output.getvalue().splitlines() if line.strip())


def number(value: float | None, form: str) -> str:
    """Format a figure, such as with ".3f"; one that nobody knows, too."""
    return NOT_KNOWN if value is None else format(value, form)


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds: 1:05."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


STATUS = Console(stderr=True)


def print_error(message: str) -> None:
    """Print one line to stderr."""
    print(printable(message), file=sys.stderr)


def guarded(tool: Callable[[], int]) -> int:
    """Run a tool; what goes wrong outside of it (a full disk, missing rights, Ctrl-C) is one line and exit code 1."""
    try:
        return tool()
    except OSError as error:
        print_error(f"{error.filename or 'failed'}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        print_error("interrupted")
        return 1
