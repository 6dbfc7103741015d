"""Injected stragglers: periods in which a worker's iterations or messages take longer.

The same events are used by launch, where the worker really waits, and by simulate, where virtual time
passes.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: What is delayed: iterations, or messages to the parameter servers (a payload, a poll, the request
#: for a model).
KINDS = ("compute", "network")
COMPUTE, NETWORK = KINDS
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)"
_SPELL = re.compile(rf"({'|'.join(KINDS)}):{_NUMBER}@{_NUMBER}\+{_NUMBER}")


@dataclass(frozen=True)
class StragglerEvent:
    """A period in which a worker is a straggler; times in seconds.

    Attributes:
        kind: one of KINDS.
        delay: additional time of each iteration that begins, or message that leaves, in the period.
        at: time in the run at which the period begins.
        lasting: its duration.
    """

    kind: str
    delay: float
    at: float
    lasting: float

    def __str__(self) -> str:
        """Return the event as it is written on a command line."""
        return f"{self.kind}:{self.delay:.12g}@{self.at:.12g}+{self.lasting:.12g}"


def parse_straggler_event(text: str) -> StragglerEvent:
    """Parse KIND:DELAY@AT+LASTING.

    Raises:
        ValueError: the text does not have that form.
    """
    match = _SPELL.fullmatch(text)
    times = [float(number) for number in match.groups()[1:]] if match else []
    if match is None or not all(map(math.isfinite, times)):
        raise ValueError(
            f"{text!r} should be KIND:DELAY@AT+LASTING with a kind of {' and '.join(KINDS)} and seconds, "
            "network:0.03@60+100 for instance"
        )
    return StragglerEvent(match[1], *times)


class Straggler:
    """Computes the present delay of this worker's iterations and messages.

    Args:
        straggler_events: the periods in which the worker is a straggler.
        now: returns the time in seconds.
    """

    def __init__(self, straggler_events: Sequence[StragglerEvent], now: Callable[[], float]) -> None:
        self._events, self._now = tuple(straggler_events), now
        self._zero: float | None = None  # start of the run, before which nothing is delayed

    def begin(self, elapsed: float) -> None:
        """Set the clock: the run has lasted that many seconds."""
        self._zero = self._now() - elapsed

    def delay(self, kind: str, at: float | None = None) -> float:
        """Return the delay in seconds, now or at time `at`; delays of overlapping events are added."""
        if self._zero is None or not self._events:
            return 0.0
        moment = (self._now() if at is None else at) - self._zero
        return sum(
            event.delay
            for event in self._events
            if event.kind == kind and event.at <= moment < event.at + event.lasting
        )
