"""How a message is cut to the sizes that keys can have: MXNet binds a key to the byte size of its first value.

There is one key for each size class, powers of √2 of the smallest one. A message that is larger than the largest class
goes in as many pieces of that class as it fills, and one of the smallest class that holds the rest: the fewest pieces,
and what padding adds to the last one is at most 41 %.
"""

import math
from bisect import bisect_left
from functools import lru_cache

from .... import config


@lru_cache
def classes(most: int, least: int = config.SPARSE_PIECE_ELEMENTS) -> tuple[int, ...]:
    """The sizes, ascending, in float32 values; the last one is `most`."""
    steps = max(0, math.ceil(2 * math.log2(most / least))) if most > least else 0
    return (*(math.ceil(least * 2 ** (step / 2)) for step in range(steps)), most)


def pieces(elements: int, most: int) -> list[int]:
    """The classes (numbers in `classes`) of the pieces of a message of so many float32 values, in order."""
    sizes = classes(most)
    full, rest = divmod(elements, most)
    last = [bisect_left(sizes, rest)] if rest or not full else []
    return [len(sizes) - 1] * full + last
