"""Run a program: its name, logging, signals, errors as one sentence, exit codes."""

import logging
import sys
from collections.abc import Callable

from . import progress
from .errors import ExpectedError
from .watchdog import GRACE, InterruptedBySignalError, Watchdog, exit_now

__all__ = ["COMMAND", "exit_now", "name", "run"]

#: The command whose subcommands are the programs.
COMMAND = "esync"


def name(otherwise: str) -> str:
    """Return the program's name for usage lines: `esync launch`, or else `otherwise`."""
    return sys.argv[0] if sys.argv[0].startswith(f"{COMMAND} ") else otherwise


def run(role: str, body: Callable[[Watchdog], int], grace: float = GRACE) -> int:
    """Run a program's body and return its exit code: 0 done, 1 failed, 2 bad usage.

    Args:
        role: the program's role, in front of each line of the log.
        body: takes the watchdog of this process, and returns the exit code.
        grace: seconds that the main thread has to end by itself after a signal; 0 if all of its
            waits are in C++.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {role}: %(message)s", datefmt="%H:%M:%S"
    )
    watchdog = Watchdog()
    watchdog.handle_signals(grace)
    try:
        return body(watchdog)
    except ExpectedError as error:
        if not error.transient:
            progress.report_event(progress.OVER, reason=str(error), consequence=error.consequence)
        print(f"{role}: error: {error}", file=sys.stderr)
    except InterruptedBySignalError as signal:
        print(f"{role}: ended by {signal}", file=sys.stderr)
    except Exception:
        logging.getLogger(__name__).exception("%s failed unexpectedly", role)
    return 1
