"""Ring allreduce: every rank sends to the next one only, 2·(p−1)/p of the vector in all (Patarasuk and Yuan, 2009).

The vector is cut into p parts. In p−1 steps each part goes once round the ring and gathers the sum; in p−1 more the
sums go round. No schedule moves fewer bytes, but the number of steps grows with the number of ranks.
"""

from .schedule import Move, Step


def ring(rank: int, ranks: int, values: int) -> list[Step]:
    """The steps of a rank; see `schedule.Schedule`."""
    after, before = (rank + 1) % ranks, (rank - 1) % ranks

    def part(index: int) -> tuple[int, int]:
        index %= ranks
        return index * values // ranks, (index + 1) * values // ranks

    gathering = [
        Step.of([Move(after, *part(rank - step))], [Move(before, *part(rank - step - 1))], adds=True)
        for step in range(ranks - 1)
    ]
    spreading = [
        Step.of([Move(after, *part(rank + 1 - step))], [Move(before, *part(rank - step))], adds=False)
        for step in range(ranks - 1)
    ]
    return gathering + spreading
