"""Local SGD (Stich, ICLR 2019; FedAvg): a fixed number of local iterations, then the mean.

The exchange is that of ESync, but fast devices wait for slow ones in every round.
"""

from .. import config
from .automatic_interval import LocalIterations
from .model_averaging import ModelAveraging
from .options import inherited
from .registry import register
from .styles import Style


@register("local-sgd", label="Local SGD", style=Style("#56B4E9", (0, (6, 1)), "<"))
class LocalSGD(ModelAveraging):
    """H local iterations on every worker, then w ← w + ε·mean(Δ); no state server."""

    class Options(ModelAveraging.Options):
        """See `ModelAveraging`."""

        local_iterations: LocalIterations = inherited(
            ModelAveraging.Options, "local_iterations", config.LOCAL_ITERATIONS
        )
