"""Write acc.csv and loss.csv beside rank 0's round files, for Sync-Switch's reports.

`Step` counts the changes of the common model (one per round of synchronous training, one per commit
used at once), `Time` is in seconds since the run began, `Samples` are those of all workers.
"""

import math

from .. import config
from ..exchange import Result
from .round_log import RoundLog

HEADING = "Wall time,Time,Step,Samples,Value"
ACCURACY_FILE, LOSS_FILE = "acc.csv", "loss.csv"
FILES = (ACCURACY_FILE, LOSS_FILE)


class CsvCurves:
    """Curves of accuracy and loss of one run.

    Args:
        files: the folder of the files.
        started: when the run began, in seconds since 1970; 0 in virtual time.
        step: the last step to keep of earlier files; their later steps are left out.
    """

    def __init__(self, files: RoundLog, started: float, step: int = 0) -> None:
        self._files, self._started = files, started
        self._lines = {name: _kept(files.text(name), step) for name in FILES}
        self._rounds = 0
        self._last = (0.0, 0, 0)  # time, step, samples

    def round(self, time: float, result: Result, loss: float) -> None:
        """Take a round of rank 0, which ended `time` seconds after the beginning of the run.

        `loss` is that of its last batch.
        """
        self._last = (time, result.step, result.samples)
        self._rounds += 1
        if self._rounds == 1 or self._rounds % config.LOSS_EVERY == 0 or result.finished:
            self._add(LOSS_FILE, *self._last, loss)

    def accuracy(self, time: float, step: int, samples: int, accuracy: float) -> None:
        """Take the accuracy of the weights at that time and step."""
        self._add(ACCURACY_FILE, time, step, samples, accuracy)

    def diverged(self) -> None:
        """Note that the loss, of this or another worker, is no longer a number."""
        self._add(LOSS_FILE, *self._last, math.nan)

    def write(self) -> None:
        """Update the files."""
        for name, lines in self._lines.items():
            self._files.write(name, "\n".join([HEADING, *lines, ""]))

    def _add(self, name: str, time: float, step: int, samples: int, value: float) -> None:
        self._lines[name].append(f"{self._started + time:.6f},{time:.6f},{step},{samples},{value:.8g}")


def _kept(text: str, step: int) -> list[str]:
    """Return the rows of an earlier file of this run up to a step."""
    heading, *rows = text.splitlines() or [""]
    if heading != HEADING:
        return []
    whole = [row for row in rows if row.count(",") == HEADING.count(",")]
    return [row for row in whole if int(row.split(",")[2]) <= step]
