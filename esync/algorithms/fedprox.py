"""FedProx (Li et al., MLSys 2020): local SGD with a proximal term towards the common model."""

from .. import config
from .base import Style
from .local_sgd import LocalSGD
from .model_view import ModelView
from .options import option
from .registry import register


@register("fedprox", label="FedProx", style=Style("#332288", (0, (10, 1, 2, 1)), "8"))
class FedProx(LocalSGD):
    """Local SGD that stays near the weights of the last exchange, w₀.

    It minimizes F(w) + μ/2·‖w − w₀‖² (section 3.2, equation 2). So every gradient gets μ·(w − w₀)
    on top, and a device that does many local iterations on data of its own kind does not drift as
    far. μ = 0 is local SGD, to the last bit. μ is relative to the mean gradient of a batch,
    whatever the learning rate multiplies; momentum, weight decay and Adam act on the sum of the two
    gradients as on any other.

    In the paper, devices differ in how much they do in a round, and what a straggler has done by
    the end of it counts (Algorithm 2, γ-inexact solutions). Here each device may have its own
    number of local iterations, since the option `local_iterations` is per device; nobody is stopped
    by a clock, which is what `ESync` is for. Nor are devices sampled: all take part in every round.
    The mean is plain, as in the paper, unless `weighting` says otherwise.
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
