"""Recursive halving and doubling: 2·log₂ p steps (Thakur, Rabenseifner and Gropp, 2005, "recursive halving").

Partners whose numbers differ in one bit exchange halves of what they hold, add, and go on with their own half; then the
same way back, with sums. Where the number of ranks is no power of two, the surplus ones first hand their values to a
neighbour and are given the sums at the end, which costs up to 2 more vectors on their wires.
"""

from .schedule import Move, Step, half_of, part_of


def halve(place: int, places: int, values: int, base: int = 0) -> list[Step]:
    """Sum within a group of `places` (a power of two) ranks from `base` on; each keeps its `schedule.part_of`."""
    steps = []
    start, stop = 0, values
    bit = places >> 1
    while bit:
        upper = bool(place & bit)
        mine, theirs = half_of(start, stop, upper), half_of(start, stop, not upper)
        peer = base + (place ^ bit)
        steps.append(Step.of([Move(peer, *theirs)], [Move(peer, *mine)], adds=True))
        (start, stop), bit = mine, bit >> 1
    return steps


def double(place: int, places: int, values: int, base: int = 0) -> list[Step]:
    """The inverse of `halve`: the sums that each of the group keeps go to all of it."""
    steps = []
    bit = 1
    while bit < places:
        group = places // bit
        mine = part_of(place // bit, group, values)
        theirs = part_of(place // bit ^ 1, group, values)
        peer = base + (place ^ bit)
        steps.append(Step.of([Move(peer, *mine)], [Move(peer, *theirs)], adds=False))
        bit <<= 1
    return steps


def butterfly(rank: int, ranks: int, values: int) -> list[Step]:
    """The steps of a rank; see `schedule.Schedule`."""
    places = 1 << (ranks.bit_length() - 1)
    surplus = ranks - places
    if rank >= 2 * surplus:
        place = rank - surplus
        return [*_among(place, places, values, surplus)]
    # The first 2·surplus ranks are pairs: both add one half, then the even one has the whole, and works for both.
    lower, upper = half_of(0, values, False), half_of(0, values, True)
    peer = rank ^ 1
    if rank % 2:
        return [
            Step.of([Move(peer, *lower)], [Move(peer, *upper)], adds=True),
            Step.of([Move(peer, *upper)], [], adds=False),
            Step.of([], [Move(peer, 0, values)], adds=False),
        ]
    return [
        Step.of([Move(peer, *upper)], [Move(peer, *lower)], adds=True),
        Step.of([], [Move(peer, *upper)], adds=False),
        *_among(rank // 2, places, values, surplus),
        Step.of([Move(peer, 0, values)], [], adds=False),
    ]


def _among(place: int, places: int, values: int, surplus: int) -> list[Step]:
    """Halving and doubling of those that take part, whose places are turned back into ranks."""

    def rank_of(other: int) -> int:
        return 2 * other if other < surplus else other + surplus

    def renamed(moves: tuple[Move, ...]) -> list[Move]:
        return [Move(rank_of(move.peer), move.start, move.stop) for move in moves]

    steps = [*halve(place, places, values), *double(place, places, values)]
    return [Step.of(renamed(step.sends), renamed(step.receives), step.adds) for step in steps]
