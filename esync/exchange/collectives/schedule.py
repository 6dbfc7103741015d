"""What a schedule is: the steps of one rank, each with the parts of the vector that it sends and receives.

The parts of one step do not overlap, and sends begin with the values as the step before has left them. Sender and
receiver name the same part, so nothing but the values travels, and a part without values is left out on both sides.
All schedules reduce every value at one rank and copy the sum from there: all ranks hold the same bits at the end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """The values start to stop go to, or come from, another rank."""

    peer: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many values."""
        return self.stop - self.start


@dataclass(frozen=True)
class Step:
    """What one rank does at the same time.

    Attributes:
        sends: parts that go to others.
        receives: parts that come from others.
        adds: whether what comes is added to the own values; else it replaces them.
    """

    sends: tuple[Move, ...]
    receives: tuple[Move, ...]
    adds: bool

    @classmethod
    def of(cls, sends: Iterable[Move], receives: Iterable[Move], adds: bool) -> "Step":
        """Parts without values are left out."""
        return cls(tuple(m for m in sends if m.size), tuple(m for m in receives if m.size), adds)


#: schedule(rank, ranks, values) → the steps of that rank, which sum a vector of so many values over all ranks in place.
Schedule = Callable[[int, int, int], list[Step]]


def half_of(start: int, stop: int, upper: bool) -> tuple[int, int]:
    """The lower or the upper half of a part; of an odd number of values the upper one has one more."""
    middle = (start + stop) // 2
    return (middle, stop) if upper else (start, middle)


def part_of(place: int, places: int, values: int) -> tuple[int, int]:
    """The part that is left to `place` when a vector has been halved until there are `places` (a power of two) parts.

    The parts of 2·places are halves of these, so groups of different sizes cut a vector at the same points.
    """
    start, stop = 0, values
    bit = places >> 1
    while bit:
        start, stop = half_of(start, stop, bool(place & bit))
        bit >>= 1
    return start, stop
