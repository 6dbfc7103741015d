"""Notice that this machine will be taken away: SIGUSR1, where ESYNC_PREEMPTION is 1."""

import os
import signal
from types import FrameType

from .watchdog import WatchedWait

#: Exit code of what has been preempted, and goes on with --resume.
EXIT_CODE = os.EX_TEMPFAIL


class PreemptionNotice:
    """Waits for SIGUSR1.

    Attributes:
        arrived: whether it has come.
    """

    def __init__(self) -> None:
        self.arrived = False

    def listen(self) -> None:
        """Handle the signal from now on; call it in the main thread.

        Raises:
            ValueError: this is another thread.
        """
        signal.signal(signal.SIGUSR1, self._handle)

    def wait(self, seconds: float) -> bool:
        """Wait until it has come, at most so many seconds; return whether it has."""
        return WatchedWait("a notice of preemption", seconds).until(lambda: self.arrived)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.arrived = True
