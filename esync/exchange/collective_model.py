"""The common model where there is no server: every rank keeps it, and runs the same rule on the same mean."""

from typing import Any

import numpy as np

from ..rules import STATE_VECTORS, Rule, Step, put_together, replace_by_mean, take_apart
from .base import Model, Result, Source
from .protocol.layout import Bucket, Layout
from .protocol.ledger import Ledger


class CommonModel:
    """Weights and statistics as the last exchange has left them, and what the rule remembers.

    Args:
        layout: how the model is cut; weights first, then statistics, in one vector of `values`.
        rule: what is done to the weights (statistics are always replaced by their mean).
        rule_name: its name in rules.RULES.
    """

    def __init__(self, layout: Layout, rule: Rule, rule_name: str) -> None:
        self.layout = layout
        self.values = np.zeros(layout.weights + layout.statistics, np.float32)
        self._rule = rule
        self._vectors = STATE_VECTORS.get(rule_name, 0)
        self._states: dict[int, Any] = {}

    def part(self, vector: np.ndarray, bucket: Bucket) -> np.ndarray:
        """A bucket's values in a vector like `values`."""
        offset = self.layout.weights if bucket.statistics else 0
        return vector[offset + bucket.start : offset + bucket.stop]

    def fill(self, vector: np.ndarray, weights: Source, statistics: Source | None) -> None:
        """Read weights, and statistics where there are any, into a vector like `values`."""
        end = self.layout.weights
        weights.read(0, end, vector[:end])
        if statistics is not None and self.layout.statistics:
            statistics.read(0, self.layout.statistics, vector[end:])

    def update(self, bucket: Bucket, mean: np.ndarray, message: Any, turn: int) -> None:
        """Run the rule on a bucket.

        Args:
            bucket: which.
            mean: of what the workers have sent for it.
            message: the terms of the round (wire.MESSAGE).
            turn: rounds before this one; see `rules.Step`.
        """
        weights = self.part(self.values, bucket)
        step = Step.of(message, turn=turn)
        rule = replace_by_mean if bucket.statistics else self._rule
        new, self._states[bucket.index] = rule(weights, mean, self._states.get(bucket.index), step)
        np.copyto(weights, new)

    def write(self, model: Model, statistics: bool) -> None:
        """Hand the values out."""
        weights = self.layout.weights
        model.write(False, 0, self.values[:weights])
        if statistics and self.layout.statistics:
            model.write(True, 0, self.values[weights:])

    def state(self) -> list[np.ndarray | None]:
        """What the rule remembers; see `Exchange.rule_state`."""
        vectors: list[np.ndarray | None] = []
        buckets = [bucket for bucket in self.layout.buckets if not bucket.statistics]
        for place in range(self._vectors):
            parts = [
                None if (state := self._states.get(bucket.index)) is None else take_apart(state)[place]
                for bucket in buckets
            ]
            known = [part for part in parts if part is not None]
            vectors.append(np.concatenate(known) if len(known) == len(buckets) else None)
        return vectors

    def restore(self, vectors: list[Any]) -> None:
        """The inverse of `state`."""
        for bucket in self.layout.buckets:
            if not bucket.statistics:
                parts = [None if each is None else each[bucket.start : bucket.stop].copy() for each in vectors]
                self._states[bucket.index] = put_together(parts) if parts else None


def standing(ledger: Ledger, wait: float, transfer: float, used: bool) -> Result:
    """How things stand in a worker's books, as the result of an exchange that took so many seconds; all are there."""
    return Result(
        round=ledger.round,
        version=ledger.version,
        samples=ledger.samples,
        wait=wait,
        transfer=transfer,
        finished=ledger.finished,
        used=used,
        elapsed=ledger.elapsed,
        members=tuple(range(ledger.slots)),
        step=ledger.step,
    )
