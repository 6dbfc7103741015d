"""AdamW as an optimizer of Gluon: MXNet 1.9 has the operator, but no optimizer of that name."""

import math
import sys
from typing import Any

from ..runtime.mxnet_import import mx


@mx.optimizer.register
class AdamW(mx.optimizer.Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), by the name "adamw".

    weights ← weights − learning_rate·(m̂/(√v̂ + epsilon) + wd·weights), with the running means m̂ and v̂
    corrected as by mx.optimizer.Adam. As the decay has no part in the gradient, it is not clipped.

    Args:
        options: those of mx.optimizer.Adam, with the same defaults.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(lazy_update=False, **options)

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        """Take one step, in place."""
        self._update_count(index)
        t = self._index_update_count[index]
        correction = math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        clipping = {} if self.clip_gradient is None else {"clip_gradient": self.clip_gradient}
        mx.nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            self.rescale_grad,
            lr=correction,
            eta=self._get_lr(index),
            wd=self._get_wd(index),
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            out=weight,
            **clipping,
        )


#: States that earlier versions have saved (`Trainer.save_states`) name this module as it was called then.
sys.modules["esync.adamw"] = sys.modules[__name__]
