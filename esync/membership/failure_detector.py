"""The failure detector, which concludes from repeated looks which peers are gone."""

import math
from collections.abc import Collection
from typing import Generic, TypeVar

P = TypeVar("P")


class FailureDetector(Generic[P]):
    """Decides which peers are gone; a peer is anything hashable that names a process.

    A peer must be seen, or expected, before it can be missed. Its grace period begins with the
    first look at which it is missing, not when it was last seen: a process that has itself been
    suspended must not take its own pause for the absence of all others.

    Args:
        grace: seconds that a peer may be missing, for instance while it connects again.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._deadlines: dict[P, float] = {}  # when a peer counts as gone; infinite while it is there

    def __len__(self) -> int:
        """Return the number of peers that have been seen or are expected."""
        return len(self._deadlines)

    @property
    def absent(self) -> list[P]:
        """The peers that were missing at the last look, whether or not they count as gone yet."""
        return [peer for peer, deadline in self._deadlines.items() if deadline < math.inf]

    def expect(self, peer: P, until: float) -> None:
        """Count a peer that has never been seen as gone if it is not seen by then."""
        self._deadlines.setdefault(peer, until)

    def missing(self, peer: P, now: float) -> float:
        """Return the seconds that a peer has been missing; 0 while it is there."""
        return max(0.0, now - (self._deadlines[peer] - self._grace))

    def forget(self, peer: P) -> None:
        """Forget a peer until it is seen again."""
        self._deadlines.pop(peer, None)

    def keep(self, peers: Collection[P]) -> None:
        """Forget all other peers."""
        self._deadlines = {peer: deadline for peer, deadline in self._deadlines.items() if peer in peers}

    def look(self, present: Collection[P], now: float) -> list[P]:
        """Take one look.

        Args:
            present: the peers that are there.
            now: seconds, by a monotonic clock.

        Returns:
            The peers that are gone, the one that has been gone longest first.
        """
        for peer in present:
            self._deadlines[peer] = math.inf
        for peer, deadline in self._deadlines.items():
            if deadline == math.inf and peer not in present:
                self._deadlines[peer] = now + self._grace
        gone = [peer for peer, deadline in self._deadlines.items() if now > deadline]
        return sorted(gone, key=self._deadlines.__getitem__)
