"""The failure detector, which decides which peers are gone by repeated observations."""

import math
from collections.abc import Collection
from typing import Generic, TypeVar

P = TypeVar("P")


class FailureDetector(Generic[P]):
    """Decides which peers are gone; a peer is any hashable identifier of a process.

    A peer must have been observed, or be expected, before it can be gone. Its grace period begins with
    the first observation in which it is missing, not with the last one in which it was present, so that
    a suspended process does not interpret its own pause as the absence of all others.

    Args:
        grace: seconds for which a peer may be missing, for instance while it reconnects.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._deadlines: dict[P, float] = {}  # when a peer counts as gone; infinite while it is present

    def __len__(self) -> int:
        """Return the number of peers that have been observed or are expected."""
        return len(self._deadlines)

    @property
    def absent(self) -> list[P]:
        """The peers that were missing in the last observation, whether or not they count as gone yet."""
        return [peer for peer, deadline in self._deadlines.items() if deadline < math.inf]

    def expect(self, peer: P, until: float) -> None:
        """Expect a new peer, which counts as gone if it is not observed until a given time."""
        self._deadlines.setdefault(peer, until)

    def missing(self, peer: P, now: float) -> float:
        """Return the seconds for which a peer has been missing; 0 while it is present."""
        return max(0.0, now - (self._deadlines[peer] - self._grace))

    def forget(self, peer: P) -> None:
        """Forget a peer until it is observed again."""
        self._deadlines.pop(peer, None)

    def keep(self, peers: Collection[P]) -> None:
        """Forget all other peers."""
        self._deadlines = {peer: deadline for peer, deadline in self._deadlines.items() if peer in peers}

    def observe(self, present: Collection[P], now: float) -> list[P]:
        """Record an observation.

        Args:
            present: the peers that are present.
            now: time of a monotonic clock in seconds.

        Returns:
            The peers that are gone, in the order in which they disappeared.
        """
        for peer in present:
            self._deadlines[peer] = math.inf
        for peer, deadline in self._deadlines.items():
            if deadline == math.inf and peer not in present:
                self._deadlines[peer] = now + self._grace
        dead = [peer for peer, deadline in self._deadlines.items() if now > deadline]
        return sorted(dead, key=self._deadlines.__getitem__)
