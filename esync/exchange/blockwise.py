"""Update rules on long arrays, block by block.

A rule is a few operations one after the other, each of which reads and writes whole arrays. Rules
are elementwise, so they may as well take one short block after the other: its values come from
memory once, and stay in the processor's cache until all operations are done. The results are the
same, bit for bit.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from .. import config
from ..rules import Rule, Step, put_together, take_apart


class BlockwiseRule:
    """A rule that replaces weights in place.

    Args:
        rule: elementwise, see `rules`.
        state: what it remembers; its vectors are replaced in place.

    Attributes:
        state: once all blocks are done, the new one.
    """

    def __init__(self, rule: Rule, state: Any = None) -> None:
        self._rule, self.state = rule, state
        _keep_freed_memory()

    def blocks(self, weights: np.ndarray, value: np.ndarray, step: Step, divisor: float = 1) -> Iterator[slice]:
        """Run the rule; yield the place of each block whose weights have been replaced.

        Args:
            weights: of shape (n,), float32; replaced.
            value: the rule's input times `divisor`, of the same shape and type; changed.
            step: of the rule.
            divisor: of `value`.
        """
        vectors = None if self.state is None else take_apart(self.state)
        new: list[Any] = []
        for place in places(0, weights.size):
            old, own = weights[place], value[place]
            if divisor != 1:
                own /= np.float32(divisor)
            before = None if vectors is None else put_together([_part(vector, place) for vector in vectors])
            here = step if step.sent is None else replace(step, sent=step.sent[place])
            replaced, after = self._rule(old, own, before, here)
            # Before anything is replaced, because a rule may remember its own input.
            parts = [_own(each) for each in take_apart(after)]
            np.copyto(old, replaced)
            if not new:
                known = vectors if vectors is not None and len(vectors) == len(parts) else [None] * len(parts)
                new = list(known)
            new = [_put(whole, part, place, weights.size) for whole, part in zip(new, parts, strict=True)]
            yield place
        self.state = put_together(new) if new else self.state

    def run(self, weights: np.ndarray, value: np.ndarray, step: Step, divisor: float = 1) -> None:
        """Run the rule on all blocks; see `blocks`."""
        for _ in self.blocks(weights, value, step, divisor):
            pass


def places(start: int, stop: int) -> Iterator[slice]:
    """Yield the blocks of the values start to stop."""
    for first in range(start, stop, config.RULE_BLOCK):
        yield slice(first, min(first + config.RULE_BLOCK, stop))


def _part(vector: Any, place: slice) -> Any:
    return vector[place] if isinstance(vector, np.ndarray) else vector


def _own(part: Any) -> Any:
    """Return a part of the state that shares no memory with anything else."""
    return part.copy() if isinstance(part, np.ndarray) and part.base is not None else part


def _put(whole: Any, part: Any, place: slice, size: int) -> Any:
    """Put a block of a vector of the state in its place; return the vector."""
    if not isinstance(part, np.ndarray):
        return part
    if not isinstance(whole, np.ndarray):
        whole = np.empty(size, part.dtype)
    whole[place] = part
    return whole


@cache
def _keep_freed_memory() -> None:
    """Let C's allocator keep the memory of blocks when they are freed.

    glibc gives freed memory back to the system from twice the size of the largest block that was
    freed so far. So that a rule's intermediate results do not have to be fetched from there again
    for each block, page by page, a larger one is freed. Its memory is never touched.
    """
    np.empty(64 * config.RULE_BLOCK, np.float32)
