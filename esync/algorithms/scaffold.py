"""SCAFFOLD (Karimireddy et al., ICML 2020): local SGD with control variates against drift."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from .context import AlgorithmContext
from .local_sgd import LocalSGD
from .model_view import ModelView
from .options import option
from .registry import register
from .styles import Style

#: The name of the control variate among the vectors that are exchanged.
CONTROL = "control"


@register("scaffold", label="SCAFFOLD", style=Style("#661100", (0, (7, 2, 2, 2)), "H"))
class SCAFFOLD(LocalSGD):
    """Local SGD with control variates (Algorithm 1, option II).

    Worker i keeps c_i, an estimate of the gradient of its own data, and all have their mean c.
    Every local step is y ← y − η·(g − c_i + c): the gradient's part that is specific to this
    worker's data is replaced by the common part. After K steps from the common weights x,

        c_i⁺ = c_i − c + (x − y) / (K·η),

    which is the mean of the K gradients g, and x ← x + ε·mean(y − x), c ← c + |S|/N·mean(c_i⁺ −
    c_i), where S are the workers of N that have taken part. If rates differ between steps, their
    sum replaces K·η. Rates, c and c_i are relative to the mean gradient of a batch. Weight decay is
    part of the loss: its gradient is in g and c_i. Momentum and optimizers other than SGD are
    refused, because (x − y) / (K·η) would not be a gradient.

    With one local iteration on every worker and equal rates, the corrections cancel out in the
    mean, and x ← x − ε·η·mean(g): this is synchronous SGD with the learning rate ε·η, at twice the
    bytes.

    The corrections only cancel out while c is the mean of all c_i. So as long as no worker is
    missing, each sends c_i⁺ − c instead of c_i⁺ − c_i: afterwards c is the mean of all c_i,
    whatever has happened before. A replacement gets c from the servers and starts with the c_i of
    its slot's checkpoint, or with c, which is a correction of 0; its first round corrects c. While
    workers are missing, the others send c_i⁺ − c_i.
    """

    class Options(LocalSGD.Options):
        """The options of local SGD, without those that do not fit control variates.

        The mean of the control variates is not weighted, and is exchanged together with the weights.
        """

        weighting: Literal["uniform"] = option(
            "uniform", flag=None, help="there is no other: control variates cancel out in the plain mean only"
        )
        overlap: Literal[False] = option(
            False, flag=None, help="there is none: c comes with the weights that it belongs to"
        )
        run_ahead: int = option(1, ge=1, flag=None, help="there is no overlap")

    options: Options
    has_momentum = False
    plain_sgd = True
    vectors: ClassVar[Mapping[str, str]] = {CONTROL: "add_participants_share"}

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model; c is 0 at first."""
        super().start(context)
        self.control: np.ndarray = self.replica.further[CONTROL].values.copy()

    def before_local_step(self, model: ModelView) -> None:
        """Correct the gradient by the control variates."""
        for block in model.blocks():
            block.gradient += block.common(CONTROL) - block.of(self.control)

    def before_exchange(self, model: ModelView) -> None:
        """Update this worker's control variate, and send its change."""
        for block in model.blocks():
            control, common, contribution = block.of(self.control), block.common(CONTROL), block.contribution(CONTROL)
            np.negative(common if self._all_present else control, out=contribution)
            if self.learning_rates:  # else every step was left out after an overflow
                control += (block.anchor - block.weights) / np.float32(self.learning_rates) - common
            contribution += control

    @property
    def _all_present(self) -> bool:
        """Whether all workers took part in the rounds, as of the last exchange."""
        return self.exchange is not None and len(self.result.members) == self.exchange.workers

    def state(self) -> dict[str, Any]:
        """Return this worker's control variate; the servers have the common one."""
        return {CONTROL: self.control}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with a checkpoint's control variate."""
        if state[CONTROL].shape != self.control.shape:
            raise ValueError(f"its control variate has {state[CONTROL].size} values instead of {self.control.size}")
        self.control = state[CONTROL]
