"""Update rules on long arrays, block by block.

A rule is a sequence of elementwise operations, each of which reads and writes whole arrays. Applied
to one short block after the other, it reads every value from memory once, and the block stays in
the processor's cache for all operations. The results are the same, bit for bit.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from .. import config
from ..rules import Rule, Step, join_state, split_state


class BlockwiseRule:
    """A rule that updates weights in place, block by block.

    Args:
        rule: elementwise, see `rules`.
        state: of the rule; its vectors are updated in place.

    Attributes:
        state: of the rule; the new one when all blocks are done.
    """

    def __init__(self, rule: Rule, state: Any = None) -> None:
        self._rule, self.state = rule, state
        _keep_freed_memory()

    def blocks(self, weights: np.ndarray, value: np.ndarray, step: Step, divisor: float = 1) -> Iterator[slice]:
        """Run the rule, and yield the slice of each block when its weights have been updated.

        Args:
            weights: of shape (n,), float32; updated in place.
            value: the rule's input times `divisor`, of the same shape and type; changed.
            step: of the rule.
            divisor: of `value`.
        """
        vectors = None if self.state is None else split_state(self.state)
        new: list[Any] = []
        for block in block_slices(0, weights.size):
            old, block_value = weights[block], value[block]
            if divisor != 1:
                block_value /= np.float32(divisor)
            before = None if vectors is None else join_state([_part(vector, block) for vector in vectors])
            block_step = step if step.sent is None else replace(step, sent=step.sent[block])
            updated, after = self._rule(old, block_value, before, block_step)
            # Copied before the weights are changed, because a rule's state may share memory with its input.
            parts = [_copy_view(part) for part in split_state(after)]
            np.copyto(old, updated)
            if not new:
                new = list(vectors) if vectors is not None and len(vectors) == len(parts) else [None] * len(parts)
            new = [_put(target, part, block, weights.size) for target, part in zip(new, parts, strict=True)]
            yield block
        self.state = join_state(new) if new else self.state

    def run(self, weights: np.ndarray, value: np.ndarray, step: Step, divisor: float = 1) -> None:
        """Run the rule on all blocks; see `blocks`."""
        for _ in self.blocks(weights, value, step, divisor):
            pass


def block_slices(start: int, stop: int) -> Iterator[slice]:
    """Yield the slices of the blocks of values `start` to `stop`."""
    for first in range(start, stop, config.RULE_BLOCK):
        yield slice(first, min(first + config.RULE_BLOCK, stop))


def _part(vector: Any, block: slice) -> Any:
    return vector[block] if isinstance(vector, np.ndarray) else vector


def _copy_view(part: Any) -> Any:
    """Copy a part of the state that is a view of another array."""
    return part.copy() if isinstance(part, np.ndarray) and part.base is not None else part


def _put(vector: Any, part: Any, block: slice, size: int) -> Any:
    """Write a block of a vector of the state; return the vector, allocated with the first block."""
    if not isinstance(part, np.ndarray):
        return part
    if not isinstance(vector, np.ndarray):
        vector = np.empty(size, part.dtype)
    vector[block] = part
    return vector


@cache
def _keep_freed_memory() -> None:
    """Have glibc keep the memory of blocks when they are freed.

    glibc returns freed memory to the system above a threshold, twice the size of the largest chunk
    freed so far. Freeing a larger chunk here raises it, so that a rule's intermediate results do
    not cause page faults in every block. The chunk itself is never touched.
    """
    np.empty(64 * config.RULE_BLOCK, np.float32)
