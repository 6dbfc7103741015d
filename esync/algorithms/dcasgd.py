"""DC-ASGD: asynchronous SGD whose gradients are corrected for their delay (Zheng et al., ICML 2017)."""

from .. import config
from ..exchange import Service
from .every_iteration import EveryIteration


class DCASGD(EveryIteration):
    """Asynchronous SGD with delay compensation against the weights that this worker was sent last.

    Args:
        strength: λ; 0 is plain ASGD.
        adaptive: divide λ by the running root mean square of the gradient.
        on: the gradient that λ is relative to: "mean" of a batch, as in the paper, or "sum" over the batch where the
            trainer sends that, as in the public implementation of ESync.
        statistics: as in `ASGD`.
    """

    name = "dcasgd"
    synchronous = False
    own_statistics = True

    def __init__(
        self,
        strength: float = config.DCASGD_LAMBDA,
        adaptive: bool = config.DCASGD_ADAPTIVE,
        on: str = config.DCASGD_LAMBDA_ON,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(statistics)
        if on not in config.DCASGD_LAMBDA_ONS:
            raise ValueError(f"on is {on!r}, but should be one of {', '.join(map(repr, config.DCASGD_LAMBDA_ONS))}")
        self._options = {"strength": strength, "adaptive": adaptive, "on": on}

    def service(self) -> Service:
        """One compensated SGD step for every gradient; each worker is answered in a channel of its own."""
        return Service("delay_compensated_sgd", synchronous=self.synchronous, options=self._options, private=True)

    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        """See `Algorithm.moving_without_gradient`; the running mean of an adaptive λ forgets, too."""
        adaptive = ["the running mean of the adaptive λ"] if self._options["adaptive"] else []
        return [*super().moving_without_gradient(momentum, weight_decay), *adaptive]
