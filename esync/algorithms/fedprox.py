"""FedProx (Li et al., MLSys 2020): local SGD with a proximal term towards the common model."""

from .. import config
from .local_sgd import LocalSGD
from .model_view import ModelView
from .options import option
from .registry import register
from .styles import Style


@register("fedprox", label="FedProx", style=Style("#332288", (0, (10, 1, 2, 1)), "8"))
class FedProx(LocalSGD):
    """Local SGD that stays near the weights of the last exchange, w₀.

    It minimizes F(w) + μ/2·‖w − w₀‖² (section 3.2, equation 2): μ·(w − w₀) is added to every
    gradient, so that a device with many local iterations on data of its own drifts less. μ = 0 is
    local SGD, to the last bit. μ is relative to the mean gradient of a batch; momentum, weight
    decay and Adam act on the sum of the two gradients.

    In the paper a straggler is stopped by a clock, and what it has done by then counts (Algorithm
    2, γ-inexact solutions). Here each device may have its own number of local iterations, since the
    option `local_iterations` is per device. Devices are not sampled: all take part in every round.
    The mean is unweighted, as in the paper, unless `weighting` is set.
    """

    class Options(LocalSGD.Options):
        """The options of local SGD, and μ."""

        prox_mu: float = option(
            config.FEDPROX_MU,
            ge=0,
            metavar="MU",
            fixed=True,
            help="μ of the proximal term μ/2·‖w − w₀‖², w₀ being the weights of the last exchange; 0: none",
        )

    options: Options

    def before_local_step(self, model: ModelView) -> None:
        """Add the gradient of the proximal term."""
        if mu := self.options.prox_mu:
            for block in model.blocks():
                block.gradient += mu * (block.weights - block.anchor)
