"""Terminal output of the tools: tables, formatted figures, one-line errors.

Status and errors go to standard error, results to standard output.
"""

import io
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from .. import config
from .errors import ExpectedError
from .output import printable

#: Printed in the place of an unknown figure.
UNKNOWN = "–"
#: Package → the extra of this package that installs it.
EXTRAS = {"numba": "compiled", "llvmlite": "compiled", "matplotlib": "figures"}
#: Width in characters of a text that may be as wide as it likes.
UNLIMITED = 1000


def right(title: str, footer: str = "") -> Column:
    """Return a column of figures, which are right-aligned."""
    return Column(title, footer, justify="right")


class TerminalTable(Table):
    """A table in the style that all programs share.

    Its texts are shown as they are, not interpreted as rich's markup.

    Args:
        columns: titles, or columns with further properties.
        title: title above the table.
        footer: whether the columns have footers.
    """

    def __init__(self, *columns: str | Column, title: str | None = None, footer: bool = False) -> None:
        style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
        super().__init__(*columns, title=title, title_justify="left", show_footer=footer, **style)

    def add(self, *cells: str | Text, style: str | None = None) -> None:
        """Add a row.

        Args:
            cells: texts, one for each column.
            style: rich's style of the whole row.
        """
        self.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), style=style)


def markdown(columns: Sequence[str | Column], rows: Iterable[Sequence[str]], width: int = UNLIMITED) -> str:
    """Return a table in Markdown, padded so that it is also readable as plain text.

    Args:
        columns: titles, or columns with further properties.
        rows: texts, one for each column.
        width: characters of a line. Cells of a table that needs more take several lines, which
            people can read and Markdown cannot.
    """
    table = Table(*columns, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*(Text(cell.replace("|", r"\|")) for cell in row))
    output = io.StringIO()
    Console(file=output, width=width, color_system=None, highlight=False, markup=False, emoji=False).print(table)
    return "".join(f"{line.strip()}\n" for line in output.getvalue().splitlines() if line.strip())


def output_width() -> int:
    """Return how many characters fit into a line of standard output; a file takes any number."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED


def number(value: float | None, form: str) -> str:
    """Format a figure with a format such as ".3f"; None gives UNKNOWN."""
    return UNKNOWN if value is None else format(value, form)


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds: 1:05."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


STATUS = Console(stderr=True)


def print_error(message: str) -> None:
    """Print one line to standard error."""
    print(printable(message), file=sys.stderr)


def messages_of(program: str) -> Callable[[str], None]:
    """Return a function that prints messages of a program to standard error, without delay."""
    return lambda text: print(f"{program}: {text}", file=sys.stderr, flush=True)


def print_problems(problems: Sequence[str], rest: str = "--json FILE") -> None:
    """Print the first problems to standard error, a line each, and how many more there are.

    Args:
        problems: the problems.
        rest: what lists all of them.
    """
    for problem in problems[: config.SKIPPED_SHOWN]:
        print_error(problem)
    if len(problems) > config.SKIPPED_SHOWN:
        print_error(f"… and {len(problems) - config.SKIPPED_SHOWN} more; {rest} lists all of them")


def run_command(command: Callable[[], int], print_error: Callable[[str], None] = print_error) -> int:
    """Run a command, print its error if it fails, and return its exit code.

    Errors that can be expected (a full disk, missing rights, Ctrl-C) are printed without a
    traceback. Nothing is printed where the process that reads the output has ended.

    Args:
        command: runs the command and returns its exit code.
        print_error: prints a message.
    """
    try:
        code = command()
        sys.stdout.flush()  # what cannot be written is an error of the command
        return code
    except ExpectedError as error:
        print_error(str(error))
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        print_error(f'this needs {error.name}, which is not installed: pip install "esync[{EXTRAS[error.name]}]"')
        return 1
    except BrokenPipeError:
        return 1
    except OSError as error:
        print_error(f"{error.filename or 'failed'}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        print_error("interrupted")
        return 1
