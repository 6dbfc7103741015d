"""Injected stragglers: for a while every iteration of a worker, or every message that it sends, takes longer.

The same plan serves launch, where it is waited for, and simulate, where virtual time passes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: What is delayed: an iteration, or what is sent to the parameter servers (a payload, a poll, the
#: request for a model).
KINDS = ("compute", "network")
COMPUTE, NETWORK = KINDS
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e-?[0-9]+)?)"
_SPELL = re.compile(rf"({'|'.join(KINDS)}):{_NUMBER}@{_NUMBER}\+{_NUMBER}")


@dataclass(frozen=True)
class StragglerEvent:
    """A time span in which a worker is a straggler; all in seconds.

    Attributes:
        kind: one of KINDS.
        delay: that each iteration that begins in that time takes longer, or each message that
            leaves in it.
        at: of the run, when it begins.
        lasting: for how long.
    """

    kind: str
    delay: float
    at: float
    lasting: float

    def __str__(self) -> str:
        """Return the event as it is written on a command line."""
        return f"{self.kind}:{self.delay:.12g}@{self.at:.12g}+{self.lasting:.12g}"


def parse_straggler_event(text: str) -> StragglerEvent:
    """Parse KIND:DELAY@AT+LASTING. Raises ValueError."""
    match = _SPELL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} should be KIND:DELAY@AT+LASTING with a kind of {' and '.join(KINDS)} and seconds, "
            "network:0.03@60+100 for instance"
        )
    return StragglerEvent(match[1], *(float(number) for number in match.groups()[1:]))


class Straggler:
    """Tells how much longer iterations and messages take on this worker at the moment.

    Args:
        straggler_events: when it is a straggler, and how.
        now: the clock, in seconds.
    """

    def __init__(self, straggler_events: Sequence[StragglerEvent], now: Callable[[], float]) -> None:
        self._events, self._now = tuple(straggler_events), now
        self._zero: float | None = None  # when the run began; until then nothing is delayed

    @property
    def ever(self) -> bool:
        """Return whether there is any event."""
        return bool(self._events)

    def begin(self, elapsed: float) -> None:
        """Set the clock: the run has lasted that many seconds."""
        self._zero = self._now() - elapsed

    def delay(self, kind: str, at: float | None = None) -> float:
        """Return the seconds of delay, now or at another time of the clock; events that overlap add up."""
        if self._zero is None or not self._events:
            return 0.0
        moment = (self._now() if at is None else at) - self._zero
        return sum(
            each.delay for each in self._events if each.kind == kind and each.at <= moment < each.at + each.lasting
        )
