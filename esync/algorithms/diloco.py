"""DiLoCo (Douillard et al., arXiv 2311.08105): local SGD with Nesterov momentum on the mean update.

Its authors run AdamW on the workers (`optimizer`), and hundreds of local iterations.
"""

from .. import config
from .local_sgd import LocalSGD
from .options import inherited
from .registry import register
from .styles import Style


@register("diloco", label="DiLoCo", style=Style("#882255", (0, (4, 1, 1, 1)), ">"))
class DiLoCo(LocalSGD):
    """Local SGD whose mean update goes through an outer optimizer with momentum.

    See `rules.outer_nesterov`.
    """

    class Options(LocalSGD.Options):
        """The options of local SGD, with the defaults that DiLoCo's authors found best."""

        global_lr: float = inherited(LocalSGD.Options, "global_lr", config.DILOCO_GLOBAL_LR)
        outer_momentum: float = inherited(LocalSGD.Options, "outer_momentum", config.DILOCO_OUTER_MOMENTUM)
