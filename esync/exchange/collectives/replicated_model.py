"""The replicated model of a collective, which all ranks update in the same way."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from ...rules import Step, join_state, replace_by_mean, split_state
from ..base import ModelSink, Result, Source
from ..blockwise import BlockwiseRule, block_slices
from ..protocol import scalars
from ..protocol.layout import Bucket, Layout
from ..protocol.payload_staging import HostMemory
from ..protocol.round_state import RoundState
from ..protocol.specification import Specification
from ..weighting import rounding_error
from .transport import Coroutine


class CommonModel:
    """The common model after the last exchange, with the states of the rules.

    Args:
        layout: how the model is cut into buckets.
        specification: of the exchange.
        workers: number of workers, which all take part in every round.

    Attributes:
        layout: as given.
        values: all vectors, concatenated in the layout's order, float32.
        state_vectors: as in the specification.
    """

    def __init__(self, layout: Layout, specification: Specification, workers: int) -> None:
        self.layout = layout
        self.values = np.zeros(sum(layout.sizes.values()), np.float32)
        self._rules, self._workers, self._scalars = specification.rules(), workers, specification.scalars
        self.state_vectors = specification.state_vectors
        self._states: dict[int, Any] = {}
        ends = np.cumsum(list(layout.sizes.values())).tolist()
        self._ends = dict(zip(layout.sizes, ends, strict=True))

    def part(self, values: np.ndarray, bucket: Bucket) -> np.ndarray:
        """Return a bucket's values in an array like `values`."""
        return self.vector(values, bucket.vector)[bucket.start : bucket.stop]

    def fill(self, values: np.ndarray, vectors: Mapping[str, Source]) -> None:
        """Read vectors into an array like `values`."""
        for name, source in vectors.items():
            if size := self.layout.sizes[name]:
                source.read(0, size, self.vector(values, name))

    def read(self, bucket: Bucket, source: Source, factor: float, out: np.ndarray) -> None:
        """Read a bucket's values of a vector, times a factor, into `out`."""
        for block in block_slices(bucket.start, bucket.stop):
            part = out[block.start - bucket.start : block.stop - bucket.start]
            source.read(block.start, block.stop, part)
            if factor != 1:
                part *= np.float32(factor)

    def update(
        self, bucket: Bucket, sums: np.ndarray, divisor: float, message: Any, turn: int, model: ModelSink | None = None
    ) -> Coroutine:
        """Return a coroutine that runs the rule on a bucket.

        The mean, the rule and the writing are applied block by block, which stays in the cache.

        Args:
            bucket: to update.
            sums: of the values that the workers have sent for it; changed.
            divisor: of the sums, for the mean.
            message: with the scalars of the round (wire.MESSAGE).
            turn: number of rounds before this one; see `scalars.turn`.
            model: receives the new values at once; None: `write` delivers them later.
        """
        weights, rule = self.part(self.values, bucket), self._rules[bucket.vector]
        turn = scalars.turn(message, self._scalars, bucket.vector, turn)
        step = Step.of(message, turn=turn, workers=self._workers, count=self._workers, added=self._scalars)
        blockwise = BlockwiseRule(self._preserving if rule is replace_by_mean else rule, self._states.get(bucket.index))
        for block in blockwise.blocks(weights, sums, step, divisor):
            if model is not None:
                model.write(bucket.vector, bucket.start + block.start, weights[block])
            yield True
        self._states[bucket.index] = blockwise.state

    def _preserving(self, weights: np.ndarray, mean: np.ndarray, state: None, step: Step) -> Any:
        """Replace values by their mean, but keep values that are equal on all workers.

        Otherwise rounding errors would change frozen layers.
        """
        HostMemory.undo_rounding(mean, weights, rounding_error(self._workers))
        return replace_by_mean(weights, mean, state, step)

    def write(self, model: ModelSink, vectors: Collection[str]) -> None:
        """Write the values of these vectors to a model."""
        for name, size in self.layout.sizes.items():
            if size and name in vectors:
                model.write(name, 0, self.vector(self.values, name))

    def vector(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return a vector's values in an array like `values`."""
        end = self._ends[name]
        return values[end - self.layout.sizes[name] : end]

    def state(self) -> list[np.ndarray | None]:
        """Return the states of the rules; see `Exchange.rule_state`."""
        return [self._state(name, index) for name, count in self.state_vectors.items() for index in range(count)]

    def _state(self, name: str, index: int) -> np.ndarray | None:
        buckets = self.layout.of(name)
        parts = [
            None if (state := self._states.get(bucket.index)) is None else split_state(state)[index]
            for bucket in buckets
        ]
        existing = [part for part in parts if part is not None]
        return np.concatenate(existing) if len(existing) == len(buckets) else None

    def restore(self, vectors: Iterable[Any]) -> None:
        """Restore what `state` has returned."""
        remaining = iter(vectors)
        for name, count in self.state_vectors.items():
            state = list(islice(remaining, count))
            for bucket in self.layout.of(name):
                parts = [None if vector is None else vector[bucket.start : bucket.stop].copy() for vector in state]
                self._states[bucket.index] = join_state(parts) if parts else None


def result_of(round_state: RoundState, wait: float, transfer: float, used: bool) -> Result:
    """Return the result of an exchange in which all workers take part.

    Args:
        round_state: of this worker.
        wait: seconds of waiting for the others.
        transfer: seconds of the exchange without the wait.
        used: whether the payload was applied to the weights.
    """
    return Result(
        round=round_state.round,
        version=round_state.version,
        samples=round_state.samples,
        wait=wait,
        transfer=transfer,
        finished=round_state.finished,
        used=used,
        elapsed=round_state.elapsed,
        exchanged_at=round_state.exchanged_at,
        members=tuple(range(round_state.slots)),
        needed=round_state.needed,
        whole=round_state.whole,
        step=round_state.step,
        scalars=round_state.added_scalars,
    )
