"""The average of the common models of a run's exchanges, which varies less than the newest of them.

With a constant learning rate the weights keep moving around a minimum; their average is nearer to
it. The weight of a model in the average decays polynomially with the exchanges since (O. Shamir and
T. Zhang, *Stochastic gradient descent for non-smooth optimization: convergence results and optimal
averaging schemes*, ICML 2013, section 4), so that the average spans a share of the run so far rather
than a number of exchanges, which differ in length from mode to mode.
"""

from typing import Any

import numpy as np

from .. import config
from ..exchange import Flat, SizedSource

#: Its name among what a checkpoint tracks.
AVERAGE = "weight average"
#: η of the paper: the average after n exchanges spans about the last n ÷ (η + 1).
ETA = config.POLYNOMIAL_DECAY
#: Values that are averaged at a time, so that they stay in the processor's cache.
BLOCK = 1 << 16


class WeightAverage:
    """The average of weights and statistics; a checkpoint can keep it (`checkpoints.Tracked`).

    Args:
        every: every how many exchanges the common model is added; adding 11 million weights takes
            about 20 ms.

    Attributes:
        weights: averaged weights; None before the first exchange.
        statistics: averaged values that are not trained, likewise.
    """

    def __init__(self, every: int = 1) -> None:
        self.weights: Flat | None = None
        self.statistics: Flat | None = None
        self._every, self._exchanges = every, 0
        self._count = 0

    def due(self) -> bool:
        """Count an exchange; return whether its model is to be added."""
        self._exchanges += 1
        return self._exchanges % self._every == 1 % self._every

    def add(self, weights: SizedSource, statistics: SizedSource) -> None:
        """Add a common model; both sources must be open."""
        if self.weights is None or self.statistics is None:
            self.weights, self.statistics = (
                Flat(np.zeros(source.size, np.float32)) for source in (weights, statistics)
            )
        self._count += 1
        share = np.float32((ETA + 1) / (ETA + self._count))
        for source, average in ((weights, self.weights), (statistics, self.statistics)):
            buffer = np.empty(min(BLOCK, source.size), np.float32)
            for start in range(0, source.size, BLOCK):
                part = average.values[start : start + BLOCK]
                change = buffer[: part.size]
                source.read(start, start + part.size, change)
                change -= part
                change *= share
                part += change

    def fits(self, weights: SizedSource, statistics: SizedSource) -> bool:
        """Return whether the averages, if there are any, have the sizes of these."""
        pairs = (self.weights, weights), (self.statistics, statistics)
        return all(average is None or average.size == source.size for average, source in pairs)

    def reset(self) -> None:
        """Begin anew."""
        self.weights, self.statistics, self._exchanges, self._count = None, None, 0, 0

    def state(self) -> dict[str, Any]:
        """Return the averages and what they are of."""
        if self.weights is None or self.statistics is None:
            return {}
        arrays = {"weights": self.weights.values, "statistics": self.statistics.values}
        return {"exchanges": self._exchanges, "count": self._count, **arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        if state:
            self._exchanges, self._count = state["exchanges"], state["count"]
            self.weights, self.statistics = Flat(state["weights"]), Flat(state["statistics"])
