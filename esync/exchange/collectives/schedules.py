"""The schedules of allreduce: the transfers of each rank in each step, as plain data.

The parts of one step do not overlap, and sends use the values from before the step. Sender and
receiver derive the same parts, so only values are sent, and both leave out empty parts. All
schedules reduce every value at one rank and copy the sum from there, so the results are the same on
all ranks, bit for bit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """A transfer of values `start` to `stop` to or from another rank."""

    peer: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of values."""
        return self.stop - self.start


@dataclass(frozen=True)
class ScheduleStep:
    """One step of a rank: concurrent transfers.

    Attributes:
        sends: parts to send to others.
        receives: parts to receive from others.
        adds: whether received values are added to those of this rank, or replace them.
    """

    sends: tuple[Move, ...]
    receives: tuple[Move, ...]
    adds: bool

    @classmethod
    def of(cls, sends: Iterable[Move], receives: Iterable[Move], adds: bool) -> "ScheduleStep":
        """Make a step, leaving out parts without values."""
        return cls(tuple(m for m in sends if m.size), tuple(m for m in receives if m.size), adds)


#: schedule(rank, ranks, values) → the steps of that rank, which sum a vector of `values` values over
#: all ranks in place.
Schedule = Callable[[int, int, int], list[ScheduleStep]]


def half_of(start: int, stop: int, upper: bool) -> tuple[int, int]:
    """Return the lower or the upper half of a part; of an odd number, the upper half has one more."""
    middle = (start + stop) // 2
    return (middle, stop) if upper else (start, middle)


def part_of(position: int, size: int, values: int) -> tuple[int, int]:
    """Return part `position` of a vector that has been halved recursively into `size` parts.

    The parts of 2·size are halves of those of size, so groups of different sizes cut a vector at
    the same points.

    Args:
        position: number of the part, from 0.
        size: number of parts, a power of two.
        values: size of the vector.
    """
    start, stop = 0, values
    bit = size >> 1
    while bit:
        start, stop = half_of(start, stop, bool(position & bit))
        bit >>= 1
    return start, stop


def halve(position: int, size: int, values: int, base: int = 0) -> list[ScheduleStep]:
    """Return the steps of reduce-scatter in a group: each rank ends with the sum of its `part_of`.

    Args:
        position: of the rank in the group, from 0.
        size: number of ranks in the group, a power of two.
        values: size of the vector.
        base: first rank of the group.
    """
    steps = []
    start, stop = 0, values
    bit = size >> 1
    while bit:
        upper = bool(position & bit)
        received, sent = half_of(start, stop, upper), half_of(start, stop, not upper)
        peer = base + (position ^ bit)
        steps.append(ScheduleStep.of([Move(peer, *sent)], [Move(peer, *received)], adds=True))
        (start, stop), bit = received, bit >> 1
    return steps


def double(position: int, size: int, values: int, base: int = 0) -> list[ScheduleStep]:
    """Return the steps of allgather in a group, after those of `halve`."""
    steps = []
    bit = 1
    while bit < size:
        group = size // bit
        held = part_of(position // bit, group, values)
        missing = part_of(position // bit ^ 1, group, values)
        peer = base + (position ^ bit)
        steps.append(ScheduleStep.of([Move(peer, *held)], [Move(peer, *missing)], adds=False))
        bit <<= 1
    return steps


def butterfly(rank: int, ranks: int, values: int) -> list[ScheduleStep]:
    """Return the steps of a rank in recursive halving and doubling, 2·log₂ p of them.

    (Thakur, Rabenseifner and Gropp, 2005, "recursive halving"; see `Schedule`.) Ranks that differ
    in one bit exchange halves of their part, add, and continue with their own half; then they
    exchange the sums in reverse order. If the number of ranks is not a power of two, the surplus
    ranks first send their values to a neighbour, and receive the sums at the end, which costs up to
    2 more vectors in their ports.
    """
    size = 1 << (ranks.bit_length() - 1)
    surplus = ranks - size
    if rank >= 2 * surplus:
        position = rank - surplus
        return [*_among(position, size, values, surplus)]
    # The first 2·surplus ranks form pairs. Both add one half, then the even rank gets the other
    # half, and takes part for both.
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
        *_among(rank // 2, size, values, surplus),
        ScheduleStep.of([Move(peer, 0, values)], [], adds=False),
    ]


def _among(position: int, size: int, values: int, surplus: int) -> list[ScheduleStep]:
    """Return the steps of halving and doubling, with positions converted to ranks."""

    def rank_of(other: int) -> int:
        return 2 * other if other < surplus else other + surplus

    def renamed(moves: tuple[Move, ...]) -> list[Move]:
        return [Move(rank_of(move.peer), move.start, move.stop) for move in moves]

    steps = [*halve(position, size, values), *double(position, size, values)]
    return [ScheduleStep.of(renamed(step.sends), renamed(step.receives), step.adds) for step in steps]


def ring(rank: int, ranks: int, values: int) -> list[ScheduleStep]:
    """Return the steps of a rank in a ring, in which every rank sends to the next one only.

    (Patarasuk and Yuan, 2009; see `Schedule`.) The vector is cut into p parts. In p−1 steps each
    part passes around the ring and accumulates the sum; in p−1 more steps the sums pass around. So
    every rank sends 2·(p−1)/p of the vector, the minimum, but the number of steps grows with the
    number of ranks.
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
    whose sizes are the powers of two in their number (13 = 8 + 4 + 1). Each block sums by halving.
    Then the smallest block sends its sums to the next larger one, which adds them to its own, and
    so on up to the largest block. The totals are sent back the same way, and each block distributes
    them by doubling.
    """
    blocks = blocks_of(ranks)
    index = next(i for i, (first, size) in enumerate(blocks) if rank < first + size)
    base, size = blocks[index]
    position = rank - base
    part = part_of(position, size, values)
    up, down = [], []
    if index + 1 < len(blocks):  # one rank of the next smaller block has the part that includes this one
        first, smaller = blocks[index + 1]
        peer = first + position * smaller // size
        up.append(ScheduleStep.of([], [Move(peer, *part)], adds=True))
        down.append(ScheduleStep.of([Move(peer, *part)], [], adds=False))
    if index:  # several ranks of the next larger block have pieces of this part
        first, larger = blocks[index - 1]
        ratio = larger // size
        inner = [position * ratio + offset for offset in range(ratio)]
        pieces = [Move(first + member, *part_of(member, larger, values)) for member in inner]
        up.append(ScheduleStep.of(pieces, [], adds=False))
        down.insert(0, ScheduleStep.of([], pieces, adds=False))
    return [*halve(position, size, values, base), *up, *down, *double(position, size, values, base)]
