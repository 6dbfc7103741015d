"""Progress of a worker: a line per round for readers, and the same as JSON for the launcher."""

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, TextIO

#: In front of a line of JSON on standard output, where the environment asks for it.
MARK = "@progress "
VARIABLE = "ESYNC_PROGRESS"
#: The same for what happens once; the kinds of it.
EVENT_MARK = "@event "
READY = "ready"  # the worker is about to look for the others
JOINED = "joined"  # the worker has the common model and begins to train
CUT_OFF = "cut off"  # it ends because it reaches the others no more, for the reason that it gives
FINISHED = "finished"  # it knows that the run is finished, and asks nobody for anything any more
DONE = "done"  # it has done all that it had to, and has said goodbye
OVER = "over"  # it ends on purpose, for the reason that it gives: another process in its place would do the same

#: What to do where a run is finished, but for its final model.
WITHOUT_FINAL_MODEL = (
    "nobody has written the final model; with --checkpoint-dir and --resume the same command writes it from the newest "
    "checkpoint (after the rounds that this one lacks); without checkpoints the run has to be done again"
)


@dataclass(frozen=True)
class Progress:
    """One round of one worker.

    Attributes:
        rank: the worker.
        round: the round that is over.
        local_iterations: of this worker in it.
        samples_per_second: of this worker in it.
        wait: seconds from this worker's commit to the last one's.
        elapsed: seconds since the start.
        accuracy: of the newest weights that have been evaluated; None where nothing is evaluated
            here.
        accuracy_round: the round that those weights are from.
    """

    rank: int
    round: int
    local_iterations: int
    samples_per_second: float
    wait: float
    elapsed: float
    accuracy: float | None = None
    accuracy_round: int | None = None

    def line(self) -> str:
        """Return the progress as a readable line."""
        plural = " " if self.local_iterations == 1 else "s"
        text = (
            f"round {self.round:4d}  {self.local_iterations:3d} local iteration{plural}"
            f"  {self.samples_per_second:7.1f} samples/s  wait {self.wait:6.3f} s"
        )
        if self.accuracy is not None:
            text += f"  accuracy {self.accuracy:.3f} (round {self.accuracy_round})"
        return text


def parse(line: str) -> Progress | None:
    """Return the progress in a line of a worker's output; None if the line is something else."""
    if not line.startswith(MARK):
        return None
    try:
        return Progress(**json.loads(line[len(MARK) :]))
    except (ValueError, TypeError):
        return None


def report_event(kind: str, stream: TextIO | None = None, **facts: Any) -> None:
    """Report a single event to the launcher; does nothing without one."""
    if os.environ.get(VARIABLE) == "json":
        print(EVENT_MARK + json.dumps({"kind": kind, **facts}), file=stream or sys.stdout, flush=True)


def parse_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line of a worker's output; None if the line is something else."""
    if not line.startswith(EVENT_MARK):
        return None
    try:
        event = json.loads(line[len(EVENT_MARK) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


class ProgressReporter:
    """Prints progress.

    Args:
        quiet: print no readable lines.
        machine: lines of JSON, for the launcher.
        stream: where to.
    """

    def __init__(self, quiet: bool, machine: bool, stream: TextIO | None = None) -> None:
        self._quiet, self._machine = quiet, machine
        self._stream = stream or sys.stdout
        self._last: Progress | None = None

    def round(self, progress: Progress) -> None:
        """Report a round."""
        self._last = progress
        self._tell_machine()
        if not self._quiet:
            print(progress.line(), file=self._stream, flush=True)

    def accuracy(self, number: int, accuracy: float) -> None:
        """Report the accuracy of an earlier round."""
        if self._last is not None:
            self._last = replace(self._last, accuracy=accuracy, accuracy_round=number)
            self._tell_machine()
        if not self._quiet:
            print(f"round {number:4d}  accuracy {accuracy:.4f}", file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Print a message."""
        if not self._quiet:
            print(text, file=self._stream, flush=True)

    def _tell_machine(self) -> None:
        if self._machine and self._last is not None:
            print(MARK + json.dumps(asdict(self._last)), file=self._stream, flush=True)
