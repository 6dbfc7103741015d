"""DiLoCo (Douillard et al., arXiv 2311.08105): local SGD with Nesterov's momentum on the mean update.

Its authors run AdamW on the workers (`optimizer`), and hundreds of local iterations.
"""

from .. import config
from .local_sgd import LocalSGD


class DiLoCo(LocalSGD):
    """Local SGD whose mean update goes through an outer optimizer with momentum; see `rules.outer_nesterov`."""

    name = "diloco"

    def __init__(
        self,
        local_iterations: int = config.LOCAL_ITERATIONS,
        global_lr: float = config.DILOCO_GLOBAL_LR,
        outer_momentum: float = config.DILOCO_OUTER_MOMENTUM,
        weighting: str = config.WEIGHTING,
        compression: str = config.COMPRESSION,
        run_ahead: int = 0,
    ) -> None:
        super().__init__(local_iterations, global_lr, outer_momentum, weighting, compression, run_ahead)
