"""Model difference tracking: what a server owes each worker (DGS paper, Algorithm 2 with its errata).

In the paper's words M ← M − g, G ← M − v_k, v_k ← v_k + G, with M and v_k zero at the start. Here θ0 + M and θ0 + v_k
are kept instead: they are the weights that all start from with all updates, and the weights that worker k has. So a
worker's own addition θ_k ← θ_k + G and the server's are the same float32 operation on the same numbers, and
θ_k = θ0 + v_k holds to the last bit, whatever was rounded on the way. What a worker was not sent (secondary
compression, rounding to float16) stays in the difference by itself.

Where a worker's weights may differ is remembered, so that a message costs what has changed, not what the model holds:
each update's indices wait, shared by all workers, until the worker comes; once they are more than a share of the model,
everything is compared instead.
"""

from dataclasses import dataclass, field

import numpy as np

from . import Sparse, kernels
from .compressors import as_sent
from .selection import Selection

#: Share of the values beyond which a worker's pending indices are no longer kept.
EVERYWHERE = 0.5


@dataclass
class Pending:
    """Where the weights of one worker may differ from the model.

    Attributes:
        lists: of indices, shared with other workers.
        entries: in all lists.
        everywhere: nothing is known: the lists are not kept.
    """

    lists: list[np.ndarray] = field(default_factory=list)
    entries: int = 0
    everywhere: bool = False

    def add(self, indices: np.ndarray, most: float) -> None:
        """These may differ too."""
        if not self.everywhere and indices.size:
            self.lists.append(indices)
            self.entries += indices.size
            self.everywhere = self.entries > most
            if self.everywhere:
                self.lists, self.entries = [], 0


class DifferenceTracker:
    """One flat part of a model, and what every worker has of it.

    Args:
        weights: θ0 + M; changed in place.
        secondary: what of a difference is sent; None: all of it.
        kind: of the values on the wire, "float32" or "float16".
    """

    def __init__(self, weights: np.ndarray, secondary: Selection | None = None, kind: str = "float32") -> None:
        self.weights = weights
        self._secondary, self._kind = secondary, kind
        self._pending: dict[int, Pending] = {}
        self._sent: dict[int, np.ndarray] = {}
        self._marks = np.zeros(-(-weights.size // 64), np.uint64)
        self._room: Sparse = np.empty(0, np.int64), np.empty(0, np.float32)

    @property
    def memory(self) -> int:
        """Bytes: the weights, those of each worker, and what is pending (shared lists counted once)."""
        lists = {id(each): each.nbytes for pending in self._pending.values() for each in pending.lists}
        room = self._marks.nbytes + sum(each.nbytes for each in self._room)
        return self.weights.nbytes + sum(each.nbytes for each in self._sent.values()) + sum(lists.values()) + room

    def welcome(self, worker: int, sent: np.ndarray) -> None:
        """A worker (or its successor) has exactly these weights; `sent` is changed in place from now on."""
        self._sent[worker] = sent
        self._pending[worker] = Pending(everywhere=True)

    def apply(self, step: Sparse) -> None:
        """M ← M − g: subtract a step from the weights."""
        indices, values = step
        kernels.subtract(self.weights, indices, values)
        for pending in self._pending.values():
            pending.add(indices, EVERYWHERE * self.weights.size)

    def difference(self, worker: int) -> Sparse:
        """G ← M − v_k, or its largest values; v_k ← v_k + G as it is sent."""
        sent, pending = self._sent[worker], self._pending[worker]
        indices, values = self._compare(sent, pending)
        chosen = self._secondary.among(indices, values) if self._secondary is not None else slice(None)
        places, parts = indices[chosen], as_sent(values[chosen], self._kind)
        kernels.add(sent, places, parts)
        self._pending[worker] = rest = Pending()
        if self._secondary is not None or self._kind != "float32":
            left = self.weights[indices] != sent[indices]
            rest.add(indices[left], EVERYWHERE * self.weights.size)
        return places, parts

    def _compare(self, sent: np.ndarray, pending: Pending) -> Sparse:
        """Copies of where and by how much the weights differ."""
        most = self.weights.size if pending.everywhere else min(pending.entries, self.weights.size)
        if self._room[0].size < most:
            self._room = np.empty(most, np.int64), np.empty(most, np.float32)
        indices, values = self._room
        if pending.everywhere:
            found = kernels.difference_everywhere(self.weights, sent, indices, values)
        else:
            for each in pending.lists:
                kernels.mark(self._marks, each)
            found = kernels.difference(self.weights, sent, self._marks, indices, values)
        return indices[:found].copy(), values[:found].copy()
