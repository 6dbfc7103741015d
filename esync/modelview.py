"""What the hooks of an algorithm see of this worker's model: flat NumPy arrays, copied when they are asked for."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

#: Takes a view; `Algorithm.before_local_step` is one.
Hook = Callable[["ModelView"], None]


class Arrays(Protocol):
    """Several arrays as one flat vector; see `replica.FlatArrays`."""

    size: int

    def open(self) -> None:
        """Fetch the current values."""

    def times(self, factor: float) -> np.ndarray:
        """A copy of all values, multiplied by a factor."""

    def change(self, values: np.ndarray, factor: float) -> None:
        """Take over what has been changed in that copy."""


class ViewedReplica(Protocol):
    """The model that a view is of; see `replica.Replica`."""

    weights: Any
    gradients: Any
    statistics: Any
    anchor: np.ndarray | None


class ModelView:
    """This worker's model as NumPy sees it, for the time of one call of a hook.

    Each property is a flat float32 array in the order of the trainer's parameters (by name, where it was given those of
    `net.collect_params()`), and a copy that is made when it is first asked for: what is not touched costs nothing. So
    all of NumPy is there,

        model.gradient += mu * (model.weights - model.anchor)

    and an array may be kept after the hook has returned. What has been changed in place, or assigned, is written back
    when the hook returns; a value that it has left alone stays as it was to the last bit. When the hook raises an
    exception, nothing is written.

    Attributes:
        batch_size: samples of this worker's batch; None where there is no batch, after an exchange.
    """

    def __init__(
        self, replica: ViewedReplica, batch_size: int | None, gradient_factor: float, fixed_weights: bool = False
    ) -> None:
        self._replica, self.batch_size, self._factor = replica, batch_size, gradient_factor
        self._fixed_weights = fixed_weights
        self._copies: dict[str, np.ndarray] = {}

    @property
    def weights(self) -> np.ndarray:
        """The trained values; the optimizer's float32 copies of float16 weights, where it keeps any.

        Where an algorithm sends gradients, changed weights last until the next exchange brings the servers'. Where it
        sends them sparsely, the array is read-only: the servers reckon with what each worker has.
        """
        copy = self._copy("weights", self._replica.weights)
        copy.flags.writeable = not self._fixed_weights
        return copy

    @weights.setter
    def weights(self, values: np.ndarray) -> None:
        if self._fixed_weights:
            raise RuntimeError("model.weights cannot be changed: the servers reckon with what this worker has")
        self._assign("weights", self._replica.weights, values)

    @property
    def gradient(self) -> np.ndarray:
        """The mean gradient of this worker's batch, as long as `weights`.

        Gluon leaves the sum over the batch; automatic mixed precision multiplies that by its loss scale, and
        `gradient_scale` the step's share of it. None of that is to be seen here: the values are those that weight decay
        is relative to. A `rescale_grad` of the optimizer is part of them.

        With automatic mixed precision, gradients that have overflowed may come to a hook of an algorithm with a local
        optimizer. They should stay NaN or infinite: the step is then left out.

        Raises:
            RuntimeError: an exchange has ended, and the gradients of the last batch have been used.
        """
        self._check_gradient()
        return self._copy("gradient", self._replica.gradients, self._factor)

    @gradient.setter
    def gradient(self, values: np.ndarray) -> None:
        self._check_gradient()
        self._assign("gradient", self._replica.gradients, values)

    @property
    def statistics(self) -> np.ndarray:
        """The values that are not trained: batch norm's running means and variances, frozen layers."""
        return self._copy("statistics", self._replica.statistics)

    @statistics.setter
    def statistics(self, values: np.ndarray) -> None:
        self._assign("statistics", self._replica.statistics, values)

    @property
    def anchor(self) -> np.ndarray:
        """The common weights that the last exchange, or the start, has brought; as long as `weights`, read-only.

        This worker's next update is counted from them: what a hook adds to `weights` is part of that update.

        Raises:
            RuntimeError: the algorithm keeps none.
        """
        if "anchor" not in self._copies:
            anchor = self._replica.anchor
            if anchor is None:
                raise RuntimeError(
                    "there is no model.anchor: this algorithm does not send updates of the weights since the last "
                    "exchange, but gradients, or nothing; derive it from one that sends updates (LocalSGD, ESync, "
                    "DyLU), or take model.weights"
                )
            self._copies["anchor"] = copy = anchor.copy()
            copy.flags.writeable = False
        return self._copies["anchor"]

    def write_back(self) -> None:
        """Write what differs from the model."""
        replica = self._replica
        for name, arrays, factor in (
            ("weights", replica.weights, 1.0),
            ("gradient", replica.gradients, self._factor),
            ("statistics", replica.statistics, 1.0),
        ):
            if name in self._copies:
                arrays.change(self._copies[name], factor)

    def _copy(self, name: str, arrays: Arrays, factor: float = 1.0) -> np.ndarray:
        if name not in self._copies:
            arrays.open()
            self._copies[name] = arrays.times(factor)
        return self._copies[name]

    def _assign(self, name: str, arrays: Arrays, values: np.ndarray) -> None:
        if values is self._copies.get(name):
            return  # += and the like
        given = np.array(values, np.float32)  # a copy: the hook may go on with its own
        if given.shape != (arrays.size,):
            raise ValueError(
                f"model.{name} is a flat array of {arrays.size} values, but was given one of shape {given.shape}"
            )
        if name not in self._copies:
            arrays.open()
        self._copies[name] = given

    def _check_gradient(self) -> None:
        if self.batch_size is None:
            raise RuntimeError(
                "there is no model.gradient after an exchange, when the gradients of the last batch have been used: "
                "take it in before_local_step"
            )
