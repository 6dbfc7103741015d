"""DC-ASGD: asynchronous SGD with gradients corrected for their delay (Zheng et al., ICML 2017)."""

from typing import Literal

from .. import config
from ..exchange import Specification
from .asgd import ASGD
from .every_iteration import EveryIteration
from .options import option
from .registry import register
from .styles import Style


@register("dcasgd", label="DC-ASGD", summary="DCASGD", style=Style("#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "D"))
class DCASGD(EveryIteration):
    """Asynchronous SGD with gradients corrected for their delay.

    The correction is by the distance from the weights that this worker was sent last.
    """

    class Options(ASGD.Options):
        """The options of the compensation."""

        strength: float = option(
            config.DCASGD_LAMBDA, ge=0, flag="--dcasgd-lambda", help="strength λ of the compensation; 0 is plain ASGD"
        )
        adaptive: bool = option(
            config.DCASGD_ADAPTIVE,
            flag="--dcasgd-adaptive",
            help="divide λ by the running root mean square of the gradient",
        )
        on: Literal["mean", "sum"] = option(
            config.DCASGD_LAMBDA_ON,
            flag="--dcasgd-lambda-on",
            fixed=True,
            help="gradient that λ is relative to: the mean of a batch, as in the paper, or its sum, as in the public "
            "implementation of ESync",
        )

    options: Options
    synchronous = False
    elastic = True

    def specification(self) -> Specification:
        """Ask for one compensated SGD step for every gradient.

        Each worker is answered in a channel of its own.
        """
        options = self.options.model_dump(include={"strength", "adaptive", "on"})
        return Specification("delay_compensated_sgd", synchronous=self.synchronous, options=options, private=True)

    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        """See `Algorithm.moving_without_gradient`; the mean of an adaptive λ forgets, too."""
        adaptive = ["the running mean of the adaptive λ"] if self.options.adaptive else []
        return [*super().moving_without_gradient(momentum, weight_decay), *adaptive]
