"""Binary blocks: halving and doubling for any number of ranks (Rabenseifner and Träff, EuroPVM/MPI 2004).

The ranks are divided into blocks whose sizes are the powers of two in their number (13 = 8 + 4 + 1). Each block sums by
halving; then the sums of the smallest block go to the next larger one, which adds them to its own, and so on up to the
largest; the totals come down the same way, and each block spreads them by doubling.
"""

from .butterfly import double, halve
from .schedule import Move, Step, part_of


def blocks_of(ranks: int) -> list[tuple[int, int]]:
    """First rank and size of each block, the largest first."""
    blocks, first = [], 0
    for exponent in reversed(range(ranks.bit_length())):
        size = 1 << exponent
        if ranks & size:
            blocks.append((first, size))
            first += size
    return blocks


def binary_blocks(rank: int, ranks: int, values: int) -> list[Step]:
    """The steps of a rank; see `schedule.Schedule`."""
    blocks = blocks_of(ranks)
    index = next(i for i, (first, size) in enumerate(blocks) if rank < first + size)
    base, size = blocks[index]
    place = rank - base
    part = part_of(place, size, values)
    up, down = [], []
    if index + 1 < len(blocks):  # from the next smaller block, one rank holds a part around mine
        first, smaller = blocks[index + 1]
        peer = first + place * smaller // size
        up.append(Step.of([], [Move(peer, *part)], adds=True))
        down.append(Step.of([Move(peer, *part)], [], adds=False))
    if index:  # in the next larger one, several hold pieces of mine
        first, larger = blocks[index - 1]
        ratio = larger // size
        inner = [place * ratio + offset for offset in range(ratio)]
        pieces = [Move(first + each, *part_of(each, larger, values)) for each in inner]
        up.append(Step.of(pieces, [], adds=False))
        down.insert(0, Step.of([], pieces, adds=False))
    return [*halve(place, size, values, base), *up, *down, *double(place, size, values, base)]
