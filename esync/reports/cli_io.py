"""What both tools say to the person at the terminal: status and complaints go to stderr, results to stdout."""

import sys
from collections.abc import Callable

from rich.console import Console

from ..runtime.printable import printable

STATUS = Console(stderr=True)


def complain(message: str) -> None:
    """Print one line to stderr."""
    print(printable(message), file=sys.stderr)


def guarded(tool: Callable[[], int]) -> int:
    """Run a tool; what goes wrong outside of it (a full disk, missing rights, Ctrl-C) is one line and exit code 1."""
    try:
        return tool()
    except OSError as error:
        complain(f"{error.filename or 'failed'}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 1
