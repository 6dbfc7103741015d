"""Launcher: `python -m esync.launch clusters/NAME.yaml`."""

import os
import signal
import sys

from ..runtime import output


def main() -> int:
    """Launch; the exit code."""
    # While the modules are read, half a second in which nothing has been started yet, Ctrl-C just
    # ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(128 + number))
    from . import command

    return command.main()


if __name__ == "__main__":
    output.install()
    sys.exit(main())
