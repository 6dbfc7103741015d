"""DC-ASGD: asynchronous SGD whose gradients are corrected for their delay (Zheng et al., ICML 2017)."""

from .. import config
from ..exchange import Service
from .every_iteration import EveryIteration


class DCASGD(EveryIteration):
    """Asynchronous SGD with delay compensation against the weights that this worker was sent last.

    Args:
        strength: λ; 0 is plain ASGD.
        adaptive: divide λ by the running root mean square of the gradient.
    """

    name = "dcasgd"
    synchronous = False

    def __init__(self, strength: float = config.DCASGD_LAMBDA, adaptive: bool = config.DCASGD_ADAPTIVE) -> None:
        super().__init__()
        self._options = {"strength": strength, "adaptive": adaptive}

    def service(self) -> Service:
        """One compensated SGD step for every gradient; each worker is answered in a channel of its own."""
        return Service("delay_compensated_sgd", synchronous=self.synchronous, options=self._options, private=True)
