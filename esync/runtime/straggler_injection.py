"""Stragglers on purpose: for a while every iteration of a worker, or every message that it sends, takes longer.

The same plan serves launch, where it is waited for, and simulate, where virtual time passes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: What is delayed: an iteration, or what is sent to the parameter servers (a payload, a poll, the request for a model).
KINDS = ("compute", "network")
COMPUTE, NETWORK = KINDS
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e-?[0-9]+)?)"
_SPELL = re.compile(rf"({'|'.join(KINDS)}):{_NUMBER}@{_NUMBER}\+{_NUMBER}")


@dataclass(frozen=True)
class Spell:
    """One while in which a worker is a straggler. All in seconds.

    Attributes:
        kind: one of KINDS.
        delay: that each iteration that begins in that time takes longer, or each message that leaves in it.
        at: of the run, when it begins.
        lasting: for how long.
    """

    kind: str
    delay: float
    at: float
    lasting: float

    def __str__(self) -> str:
        """As it stands on a command line."""
        return f"{self.kind}:{self.delay:.12g}@{self.at:.12g}+{self.lasting:.12g}"


def parse_spell(text: str) -> Spell:
    """Read KIND:DELAY@AT+LASTING; ValueError where it is something else."""
    match = _SPELL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} should be KIND:DELAY@AT+LASTING with a kind of {' and '.join(KINDS)} and seconds, "
            "network:0.03@60+100 for instance"
        )
    return Spell(match[1], *(float(number) for number in match.groups()[1:]))


class Straggler:
    """Tells how much longer things take on this worker right now.

    Args:
        spells: when it is a straggler, and how.
        now: the clock, in seconds.
    """

    def __init__(self, spells: Sequence[Spell], now: Callable[[], float]) -> None:
        self._spells, self._now = tuple(spells), now
        self._zero: float | None = None  # when the run began; until then nothing is delayed

    @property
    def ever(self) -> bool:
        """Whether it is one at any time."""
        return bool(self._spells)

    def begin(self, elapsed: float) -> None:
        """The run has lasted so many seconds by now."""
        self._zero = self._now() - elapsed

    def delay(self, kind: str, at: float | None = None) -> float:
        """Seconds on top, now or at another time of the clock; spells that overlap add up."""
        if self._zero is None or not self._spells:
            return 0.0
        moment = (self._now() if at is None else at) - self._zero
        return sum(
            each.delay for each in self._spells if each.kind == kind and each.at <= moment < each.at + each.lasting
        )
