"""The model on a parameter server: the weights of its buckets, the state of the rules, the updates.

Memory, for a model of M bytes, p workers and S servers: M/S for the weights, M/S for each vector
that a rule remembers (momentum, for instance), and p·M/S for the weights that each worker was sent
last, if the rule answers every worker differently. If commits are used at once, the latest values
of each worker are added, of vectors that are replaced by their mean: batch-norm statistics, which
are small.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...rules import Rule, Step, join_state, replace_by_mean, split_state
from ..codecs.base import Downlink, UpdatedBucket
from ..weighting import LatestValues, rounding_error
from . import scalars, wire
from .layout import WEIGHTS, Bucket, Layout
from .payload_staging import Array, Memory
from .round_state import RoundState


@dataclass
class BucketState:
    """One bucket of the model on this server.

    Attributes:
        weights: the values that the rule works on, of any vector. They share the memory of
            `published`, unless the server has a GPU or they are exact.
        published: bucket with header, as the workers pull it (channel 0).
        replies: rank → bucket with header for this worker alone, if the answers differ.
        exact: whether the published weights are lossy, and only this server has the exact ones.
        rule_state: state of the rule for these values.
        assigned: values that replace `weights`: a checkpoint's, which the rule begins with, or
            those that workers have assigned between two rounds; None: there are none.
        assigners: rank → nonce and sequence number of the payload to be used on assigned values.
        latest: of a vector that is replaced by its mean, while commits are used at once: the values
            of each worker; None: all have the published ones.
    """

    weights: Array = None
    published: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    replies: dict[int, np.ndarray] = field(default_factory=dict)
    exact: bool = False
    rule_state: Any = None
    assigned: np.ndarray | None = None
    assigners: dict[int, tuple[int, int]] = field(default_factory=dict)
    latest: LatestValues | None = None


class ServerModel:
    """The buckets of one server, to which it applies payloads.

    Args:
        layout: how the model is cut into buckets.
        round_state: the progress of the run.
        downlink: packs the weights that the workers are sent.
        rules: name of each vector → its rule.
        weightings: name of each vector → how much each worker counts in its mean.
        memory: in which the rules work.

    Attributes:
        buckets: index of each bucket of this server → its state. An entry is made when the initial
            values arrive or a checkpoint restores the rule's state, whichever is first.
    """

    def __init__(
        self,
        layout: Layout,
        round_state: RoundState,
        downlink: Downlink,
        rules: Mapping[str, Rule],
        weightings: Mapping[str, str],
        memory: Memory,
    ) -> None:
        self._layout, self._round_state, self._downlink = layout, round_state, downlink
        self._rules, self._weightings, self._memory = rules, weightings, memory
        self.buckets: dict[int, BucketState] = {}

    def bind(self, channel: int, bucket: Bucket, stored: np.ndarray) -> None:
        """Bind a bucket to the memory from which one of its keys is pulled.

        The memory of a key never moves, so calls after the first one change nothing.

        Args:
            channel: of the key; see `layout`.
            bucket: whose values these are.
            stored: the values with their header, float32.
        """
        state, values = self._bucket_state(bucket.index), stored[wire.HEADER_ELEMENTS :]
        trained = bucket.vector == WEIGHTS
        if channel:
            state.replies[channel - 1] = stored
            if trained:
                self._downlink.init_channel(channel - 1, bucket.index, values)
        elif state.weights is None:
            state.published = stored
            wire.stamp(stored, wire.WEIGHTS, 0, 0, self._round_state.step, bucket.index)
            state.exact = trained and self._downlink.keeps_exact
            state.weights = self._working_weights(state, values.copy() if state.exact else values)
            if trained:
                self._downlink.bind_weights(bucket.index, state.weights)

    def restore(self, received: np.ndarray) -> None:
        """Restore one vector of the rule's state for a bucket, or its weights, from a checkpoint.

        Args:
            received: the mailbox, a bucket of kind wire.STATE. "sequence" in its header is the
                number of the rule's vectors; with weights, that of the payload to be used on them.
        """
        header = wire.header_of(received)
        bucket, index, count = self._layout.buckets[header["bucket"]], int(header["index"]), int(header["sequence"])
        values = received[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        state = self._bucket_state(bucket.index)
        if index == wire.SERVER_WEIGHTS:
            state.assigned = values.copy()
            state.assigners[int(header["rank"])] = int(header["nonce"]), count
            return
        vectors: list[Any] = split_state(state.rule_state) if state.rule_state is not None else [None] * count
        vectors[index] = self._memory.to_array(values.copy())
        state.rule_state = join_state(vectors)

    def export(self, bucket: int, index: int, mailbox: np.ndarray) -> None:
        """Copy one vector of the rule's state for a bucket, or its weights, to the mailbox.

        The kind in the header becomes wire.NOTHING if the vector does not exist yet.

        Args:
            bucket: index of the bucket.
            index: of the vector, from 0, or wire.SERVER_WEIGHTS.
            mailbox: float32, with a header.
        """
        state = self._bucket_state(bucket)
        if index == wire.SERVER_WEIGHTS:
            vector = state.weights
        else:
            vector = split_state(state.rule_state)[index] if state.rule_state is not None else None
        header = wire.header_of(mailbox)
        header["kind"] = wire.NOTHING if vector is None else wire.STATE
        header["bucket"], header["index"] = bucket, index
        if vector is not None:
            values = self._memory.fetch(vector)
            mailbox[wire.HEADER_ELEMENTS :][: values.size] = values

    def update(
        self, values: dict[int, Array], message: Any, ranks: list[int], divisors: Mapping[str, float] | None = None
    ) -> None:
        """Run the rules, and write the results to the memory that the workers pull from.

        Args:
            values: bucket index → sum of a round's payloads, or one payload; may be changed.
            message: with the scalars of the round, or of the payload (wire.MESSAGE).
            ranks: of the workers whose payloads these are.
            divisors: name of each vector → divisor of its values; None: they are not divided.
        """
        compression = 0
        if scalars.COMPRESSION in self._round_state.added:
            self._round_state.answer[:] = compression = int(message[scalars.COMPRESSION])
        for index, value in values.items():
            vector = self._layout.buckets[index].vector
            self._update_bucket(index, value, message, ranks, divisors[vector] if divisors else 1.0)
            if vector == WEIGHTS:
                bucket = self.buckets[index]
                common = bucket.published[wire.HEADER_ELEMENTS :]
                self._downlink.pack(UpdatedBucket(index, bucket.weights, common, value, compression))
        # The round state counts this change afterwards, in `RoundState.applied`.
        self._downlink.publish(ranks, self._round_state.step + 1, self._round_state.answer)

    def forget_latest(self, rank: int) -> None:
        """Leave the latest values of a worker out of the means from the next commit on."""
        for state in self.buckets.values():
            if state.latest is not None:
                state.latest.forget(rank)

    def _bucket_state(self, index: int) -> BucketState:
        return self.buckets.setdefault(index, BucketState())

    def _working_weights(self, state: BucketState, values: np.ndarray) -> Array:
        """Return the array that the rule works on, with the assigned values, if any, or else `values`."""
        if state.assigned is not None:
            np.copyto(values, state.assigned)
            state.assigned = None
            state.assigners.clear()
        return values if state.exact else self._memory.to_array(values)

    def _update_bucket(self, index: int, value: Array, message: Any, ranks: list[int], denominator: float) -> None:
        state, vector, progress = self.buckets[index], self._layout.buckets[index].vector, self._round_state
        # By now all workers have fetched the weights of the last round.
        if state.assigned is not None and any(self._assigns(rank, state) for rank in ranks):
            state.weights = self._working_weights(
                state, state.weights if state.exact else state.published[wire.HEADER_ELEMENTS :]
            )
        private = self._downlink.private and vector == WEIGHTS
        sent = self._memory.to_array(state.replies[ranks[0]][wire.HEADER_ELEMENTS :]) if private else None
        turn = scalars.turn(message, progress.added, vector, progress.step)
        step = Step.of(message, sent, turn, progress.slots, len(ranks), progress.added)
        rule = self._rules[vector]
        if rule is replace_by_mean:
            if denominator != 1:
                value /= denominator
                denominator = 1
            value = self._mean_of_latest(state, value, message, self._weightings[vector])
        state.weights, state.rule_state = self._memory.update(
            rule, state.weights, value, state.rule_state, step, denominator
        )
        host = self._memory.fetch(state.weights)
        targets = [state.replies[rank] for rank in ranks] if private else []
        if host is not state.weights:  # else the rule has worked on the published values themselves
            targets.append(state.published)
        for target in targets:
            np.copyto(target[wire.HEADER_ELEMENTS :], host)
        wire.stamp(state.published, wire.WEIGHTS, 0, 0, progress.step + 1, index)

    def _assigns(self, rank: int, state: BucketState) -> bool:
        """Return whether the pending payload of a worker is to be used on assigned values."""
        message = self._round_state.pending[rank].message
        return state.assigners.get(rank) == (int(message["nonce"]), int(message["sequence"]))

    def _mean_of_latest(self, state: BucketState, value: Array, message: Any, weighting: str) -> Array:
        """Return the mean that replaces a bucket's values.

        In rounds, `value` is that mean already. Otherwise it is the mean of all workers' latest
        values, of which `value` is the newest.
        """
        if self._round_state.together(message):
            state.latest = None  # from now on all workers have this mean
            # Otherwise frozen layers would drift.
            self._memory.undo_rounding(value, state.weights, rounding_error(self._round_state.slots))
            return value
        if state.latest is None:
            state.latest = LatestValues(self._memory.fetch(state.weights), self._round_state.member, weighting)
        state.latest.put(int(message["rank"]), self._memory.fetch(value), int(message["samples"]))
        return self._memory.to_array(state.latest.mean())
