"""The schedules of allreduce: each rank's transfers in each step, as plain data.

The parts of one step do not overlap, and sends begin with the values as the step before has left
them. Sender and receiver name the same part, so nothing but the values travels, and a part without
values is left out on both sides. All schedules reduce every value at one rank and copy the sum from
there: all ranks hold the same bits at the end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """A transfer of the values start to stop to or from another rank."""

    peer: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of values."""
        return self.stop - self.start


@dataclass(frozen=True)
class ScheduleStep:
    """One step of a rank: transfers that go on at the same time.

    Attributes:
        sends: parts that go to others.
        receives: parts that come from others.
        adds: whether received values are added to the own ones; else they replace them.
    """

    sends: tuple[Move, ...]
    receives: tuple[Move, ...]
    adds: bool

    @classmethod
    def of(cls, sends: Iterable[Move], receives: Iterable[Move], adds: bool) -> "ScheduleStep":
        """Make a step, leaving out parts without values."""
        return cls(tuple(m for m in sends if m.size), tuple(m for m in receives if m.size), adds)


#: schedule(rank, ranks, values) → the steps of that rank, which sum a vector of so many values over
#: all ranks in place.
Schedule = Callable[[int, int, int], list[ScheduleStep]]


def half_of(start: int, stop: int, upper: bool) -> tuple[int, int]:
    """Return the lower or the upper half of a part.

    Of an odd number of values the upper half has one more.
    """
    middle = (start + stop) // 2
    return (middle, stop) if upper else (start, middle)


def part_of(place: int, places: int, values: int) -> tuple[int, int]:
    """Return the part that is left to `place` by halving a vector into `places` parts.

    `places` is a power of two. The parts of 2·places are halves of these, so groups of different
    sizes cut a vector at the same points.
    """
    start, stop = 0, values
    bit = places >> 1
    while bit:
        start, stop = half_of(start, stop, bool(place & bit))
        bit >>= 1
    return start, stop


def halve(place: int, places: int, values: int, base: int = 0) -> list[ScheduleStep]:
    """Return the steps that sum within a group, after which each rank keeps its `part_of`.

    The group has `places` (a power of two) ranks from `base` on.
    """
    steps = []
    start, stop = 0, values
    bit = places >> 1
    while bit:
        upper = bool(place & bit)
        mine, theirs = half_of(start, stop, upper), half_of(start, stop, not upper)
        peer = base + (place ^ bit)
        steps.append(ScheduleStep.of([Move(peer, *theirs)], [Move(peer, *mine)], adds=True))
        (start, stop), bit = mine, bit >> 1
    return steps


def double(place: int, places: int, values: int, base: int = 0) -> list[ScheduleStep]:
    """Return the steps that spread the sums which `halve` leaves to each rank over the group."""
    steps = []
    bit = 1
    while bit < places:
        group = places // bit
        mine = part_of(place // bit, group, values)
        theirs = part_of(place // bit ^ 1, group, values)
        peer = base + (place ^ bit)
        steps.append(ScheduleStep.of([Move(peer, *mine)], [Move(peer, *theirs)], adds=False))
        bit <<= 1
    return steps


def butterfly(rank: int, ranks: int, values: int) -> list[ScheduleStep]:
    """Return the steps of a rank in recursive halving and doubling, 2·log₂ p of them.

    (Thakur, Rabenseifner and Gropp, 2005, "recursive halving"; see `Schedule`.) Partners whose
    numbers differ in one bit exchange halves of what they hold, add, and go on with their own half;
    then the same way back, with sums. Where the number of ranks is no power of two, the surplus
    ones first hand their values to a neighbour and are given the sums at the end, which costs up to
    2 more vectors on their wires.
    """
    places = 1 << (ranks.bit_length() - 1)
    surplus = ranks - places
    if rank >= 2 * surplus:
        place = rank - surplus
        return [*_among(place, places, values, surplus)]
    # The first 2·surplus ranks are pairs: both add one half, then the even one has the whole, and
    # works for both.
    lower, upper = half_of(0, values, False), half_of(0, values, True)
    peer = rank ^ 1
    if rank % 2:
        return [
            ScheduleStep.of([Move(peer, *lower)], [Move(peer, *upper)], adds=True),
            ScheduleStep.of([Move(peer, *upper)], [], adds=False),
            ScheduleStep.of([], [Move(peer, 0, values)], adds=False),
        ]
    return [
        ScheduleStep.of([Move(peer, *upper)], [Move(peer, *lower)], adds=True),
        ScheduleStep.of([], [Move(peer, *upper)], adds=False),
        *_among(rank // 2, places, values, surplus),
        ScheduleStep.of([Move(peer, 0, values)], [], adds=False),
    ]


def _among(place: int, places: int, values: int, surplus: int) -> list[ScheduleStep]:
    """Return the steps of halving and doubling, with places turned back into ranks."""

    def rank_of(other: int) -> int:
        return 2 * other if other < surplus else other + surplus

    def renamed(moves: tuple[Move, ...]) -> list[Move]:
        return [Move(rank_of(move.peer), move.start, move.stop) for move in moves]

    steps = [*halve(place, places, values), *double(place, places, values)]
    return [ScheduleStep.of(renamed(step.sends), renamed(step.receives), step.adds) for step in steps]


def ring(rank: int, ranks: int, values: int) -> list[ScheduleStep]:
    """Return the steps of a rank in a ring, where it sends to the next one only.

    (Patarasuk and Yuan, 2009; see `Schedule`.) The vector is cut into p parts. In p−1 steps each
    part goes once round the ring and gathers the sum; in p−1 more the sums go round: 2·(p−1)/p of
    the vector in all. No schedule moves fewer bytes, but the number of steps grows with the number
    of ranks.
    """
    after, before = (rank + 1) % ranks, (rank - 1) % ranks

    def part(index: int) -> tuple[int, int]:
        index %= ranks
        return index * values // ranks, (index + 1) * values // ranks

    gathering = [
        ScheduleStep.of([Move(after, *part(rank - step))], [Move(before, *part(rank - step - 1))], adds=True)
        for step in range(ranks - 1)
    ]
    spreading = [
        ScheduleStep.of([Move(after, *part(rank + 1 - step))], [Move(before, *part(rank - step))], adds=False)
        for step in range(ranks - 1)
    ]
    return gathering + spreading


def blocks_of(ranks: int) -> list[tuple[int, int]]:
    """Return the first rank and the size of each block, the largest first."""
    blocks, first = [], 0
    for exponent in reversed(range(ranks.bit_length())):
        size = 1 << exponent
        if ranks & size:
            blocks.append((first, size))
            first += size
    return blocks


def binary_blocks(rank: int, ranks: int, values: int) -> list[ScheduleStep]:
    """Return the steps of a rank in binary blocks: halving and doubling for any number of ranks.

    (Rabenseifner and Träff, EuroPVM/MPI 2004; see `Schedule`.) The ranks are divided into blocks
    whose sizes are the powers of two in their number (13 = 8 + 4 + 1). Each block sums by halving;
    then the sums of the smallest block go to the next larger one, which adds them to its own, and
    so on up to the largest; the totals come down the same way, and each block spreads them by
    doubling.
    """
    blocks = blocks_of(ranks)
    index = next(i for i, (first, size) in enumerate(blocks) if rank < first + size)
    base, size = blocks[index]
    place = rank - base
    part = part_of(place, size, values)
    up, down = [], []
    if index + 1 < len(blocks):  # from the next smaller block, one rank holds a part around mine
        first, smaller = blocks[index + 1]
        peer = first + place * smaller // size
        up.append(ScheduleStep.of([], [Move(peer, *part)], adds=True))
        down.append(ScheduleStep.of([Move(peer, *part)], [], adds=False))
    if index:  # in the next larger one, several hold pieces of mine
        first, larger = blocks[index - 1]
        ratio = larger // size
        inner = [place * ratio + offset for offset in range(ratio)]
        pieces = [Move(first + each, *part_of(each, larger, values)) for each in inner]
        up.append(ScheduleStep.of(pieces, [], adds=False))
        down.insert(0, ScheduleStep.of([], pieces, adds=False))
    return [*halve(place, size, values, base), *up, *down, *double(place, size, values, base)]
