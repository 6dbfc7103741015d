"""What every program of this package does the same way: logging, signals, errors as one sentence, and the way out."""

import logging
import sys
from collections.abc import Callable

from . import progress
from .errors import ExpectedError
from .watchdog import GRACE, InterruptedBySignalError, Watchdog, leave

__all__ = ["leave", "run"]


def run(name: str, body: Callable[[Watchdog], int], grace: float = GRACE) -> int:
    """Run a program's body; its exit code: 0 done, 1 failed, 2 bad usage.

    Args:
        name: stands in front of what is logged.
        body: takes the watchdog of this process and returns the exit code.
        grace: seconds that the main thread has to end by itself after a signal; 0 where it only ever waits in C++.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {name}: %(message)s", datefmt="%H:%M:%S"
    )
    watchdog = Watchdog()
    watchdog.handle_signals(grace)
    try:
        return body(watchdog)
    except ExpectedError as error:
        if not error.transient:
            progress.tell(progress.OVER, reason=str(error))
        print(f"{name}: error: {error}", file=sys.stderr)
    except InterruptedBySignalError as signal:
        print(f"{name}: ended by {signal}", file=sys.stderr)
    except Exception:
        logging.getLogger(__name__).exception("%s failed in a way that nobody foresaw", name)
    return 1
