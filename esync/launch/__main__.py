"""Launcher: `python -m esync.launch clusters/NAME.yaml`."""

import os
import signal
import sys

from ..runtime import output


def main() -> int:
    """Run the launcher and return its exit code."""
    # Importing the modules takes half a second. Nothing has been started by then, so that Ctrl-C
    # may simply end the process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(128 + number))
    from . import command

    return command.main()


if __name__ == "__main__":
    output.install()
    sys.exit(main())
