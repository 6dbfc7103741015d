"""The type of gluon.Trainer, which has no type hints in MXNet.

Under a base class of type Any no misspelled name would be an error. At run time `GluonTrainer` is
gluon.Trainer itself. Type checkers see the class below: what a program may use, and what this
package reads and sets.
"""

from os import PathLike
from typing import TYPE_CHECKING, Any

from ..runtime.mxnet_import import mx

if TYPE_CHECKING:

    class GluonTrainer:
        """gluon.Trainer of MXNet 1.9.1, as far as `esync.Trainer` has it too."""

        _params: list[Any]  # gluon.Parameter
        _param2idx: dict[str, int]  # name of a parameter → its place in _params
        _optimizer: Any  # mx.optimizer.Optimizer
        _updaters: list[Any]  # one for each device; they hold the optimizer's state
        _scale: float  # multiplies gradients; automatic mixed precision sets it, too

        def __init__(
            self,
            params: Any,
            optimizer: Any,
            optimizer_params: dict[str, Any] | None = None,
            kvstore: Any = "device",
            compression_params: dict[str, Any] | None = None,
            update_on_kvstore: bool | None = None,
        ) -> None: ...

        def _init_optimizer(self, optimizer: Any, optimizer_params: dict[str, Any] | None) -> None:
            """Take an optimizer, with new state."""
            ...

        @property
        def learning_rate(self) -> float:
            """The optimizer's learning rate, or what its schedule says now."""
            ...

        @property
        def optimizer(self) -> Any:
            """The mx.optimizer.Optimizer."""
            ...

        def set_learning_rate(self, lr: float) -> None:
            """Use another learning rate from now on; UserWarning where a schedule sets it."""
            ...

        def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
            """Update the parameters with gradients of that many samples."""
            ...

        def allreduce_grads(self) -> None:
            """Sum the gradients over the devices."""
            ...

        def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
            """Update the parameters with summed gradients."""
            ...

        def save_states(self, fname: str | PathLike[str]) -> None:
            """Write the optimizer's state to a file."""
            ...

        def load_states(self, fname: str | PathLike[str]) -> None:
            """Read the optimizer's state from a file."""
            ...

else:
    GluonTrainer = mx.gluon.Trainer
