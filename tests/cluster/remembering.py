"""An algorithm with a state of its own on every worker, as somebody else might write it."""

from typing import Any

import numpy as np

from esync.algorithms import AlgorithmContext, LocalSGD, ModelView, option


class Remembering(LocalSGD):
    """Local SGD with a running mean of this worker's gradients.

    A part of the mean is forgotten at every exchange.
    """

    class Options(LocalSGD.Options):
        """Those of local SGD, and how slowly the mean forgets."""

        remembered: float = option(0.75, ge=0, lt=1, help="share of the mean that a new gradient leaves of it")

    options: Options

    def start(self, context: AlgorithmContext) -> None:
        """Begin with nothing, as an algorithm may that does not know of checkpoints."""
        super().start(context)
        self.mean = np.zeros(self.replica.weights.size, np.float32)
        self.exchanges = 0

    def before_local_step(self, model: ModelView) -> None:
        """Pull a step towards those before it."""
        share = self.options.remembered
        self.mean = share * self.mean + (1 - share) * model.gradient
        model.gradient += self.mean

    def after_exchange(self, model: ModelView) -> None:
        """Half of what was learnt for itself counts no more."""
        self.mean /= 2
        self.exchanges += 1

    def state(self) -> dict[str, Any]:
        """The mean, and how many exchanges it has been through."""
        return {"mean": self.mean, "exchanges": self.exchanges}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if state["mean"].shape != self.mean.shape:
            raise ValueError(f"its mean has {state['mean'].size} values instead of {self.mean.size}")
        self.mean, self.exchanges = state["mean"], state["exchanges"]
