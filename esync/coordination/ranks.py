"""Which ranks of a large job take part, in a text that fits into any request: one bit a rank, in hexadecimal."""

from collections.abc import Collection

#: Ranks that are listed one by one, as state servers of before understand them: 1,000 take 6 kB of a request.
LISTED_MOST = 1000


def as_text(members: Collection[int]) -> str:
    """Rank r is in where bit r is set; "b" for the ranks 0, 1 and 3."""
    return f"{sum(1 << rank for rank in members):x}"


def from_text(text: str) -> list[int]:
    """The ranks, in ascending order; ValueError where the text is no hexadecimal number."""
    bits = int(text, 16)
    return [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
