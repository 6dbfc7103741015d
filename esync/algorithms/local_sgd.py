"""Local SGD (Stich, ICLR 2019; FedAvg): every worker does the same number of local iterations, then all take the mean.

What ESync is compared with: the same exchange, but a fast device waits for a slow one in every round.
"""

from .. import config
from .esync import ESync


class LocalSGD(ESync):
    """H local iterations on every worker, then w ← w + ε·mean(Δ); no state server.

    Args:
        local_iterations: H.
        global_lr: ε.
        outer_momentum: of Nesterov's momentum on the mean update.
        weighting: how much each worker counts in the mean, see `weighting`.
        compression: of the exchanges, as in `ESync`.
        run_ahead: local iterations that may be done while an exchange is under way, H at most.
    """

    name = "local-sgd"

    def __init__(
        self,
        local_iterations: int = config.LOCAL_ITERATIONS,
        global_lr: float = config.LEARNING_RATE_GLOBAL,
        outer_momentum: float = config.OUTER_MOMENTUM,
        weighting: str = config.WEIGHTING,
        compression: str = config.COMPRESSION,
        run_ahead: int = 0,
    ) -> None:
        super().__init__(
            global_lr,
            local_iterations,
            outer_momentum=outer_momentum,
            weighting=weighting,
            compression=compression,
            run_ahead=run_ahead,
        )
