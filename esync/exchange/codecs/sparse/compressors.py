"""Compressors, which choose the part of a worker's gradients to send; one class per method.

A compressor gets flat float32 gradients, which include weight decay, and returns the sparse step
that the server subtracts from the weights. The step is multiplied by the learning rate here, so
that schedules apply to the next gradient of every worker. Values that are not sent are kept exactly.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .... import config
from . import Sparse
from .selection import Selection


def as_sent(values: np.ndarray, kind: str) -> np.ndarray:
    """Return float32 values as received when sent as float32 or float16, clipped to its range."""
    if kind == "float32":
        return values
    largest = np.finfo(np.float16).max
    return np.clip(values, -largest, largest).astype(np.float16).astype(np.float32)


class GradientDropping:
    """GD-async (DGS paper, Algorithm 1): send the largest accumulated gradients.

    r ← r + η·g; the largest values of r are sent, the others stay in r. There is no momentum.

    Args:
        selection: selects the values to send.
        kind: of the values sent, "float32" or "float16".
    """

    def __init__(self, selection: Selection, kind: str = "float32") -> None:
        self._selection, self._kind = selection, kind
        self.residual = np.zeros(selection.bounds[-1], np.float32)

    def compress(self, gradient: np.ndarray, learning_rate: float, momentum: float = 0.0) -> Sparse:
        """Process a gradient, and return the step to send.

        Args:
            gradient: float32, flat; overwritten.
            learning_rate: multiplies the gradient.
            momentum: of the method.

        Returns:
            The step with its values as received.
        """
        gradient *= np.float32(learning_rate)
        self.residual += gradient
        indices = self._selection.of(self.residual)
        exact = self.residual[indices]
        values = as_sent(exact, self._kind)
        self.residual[indices] = self._left(exact, values, momentum)
        return indices, values

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"rest": self.residual}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` has returned."""
        np.copyto(self.residual, state["rest"])

    def _left(self, exact: np.ndarray, values: np.ndarray, momentum: float) -> np.ndarray:
        """Return the residual of entries that are sent as `values`."""
        return exact - values


class SAMomentum(GradientDropping):
    """DGS (paper, Algorithm 3, Equations 14 to 16): momentum only for what is sent.

    Without the paper's division: w = c + η·g; the largest values of w are sent; c (here `residual`) ←
    m·w for values sent, w for the others. A value that is not sent for T steps is multiplied by m
    once, as in one step with a T times larger batch. With m = 0 this is gradient dropping; if all
    values are sent, it is SGD with momentum (including η).
    """

    def _left(self, exact: np.ndarray, values: np.ndarray, momentum: float) -> np.ndarray:
        # Rounding errors are not multiplied, as if they had not been selected.
        return np.float32(momentum) * values + (exact - values)


class DeepGradientCompression:
    """DGC-async: momentum correction and factor masking.

    u ← m·u + g; v ← v + u; the largest values of v are sent, times η, and set to zero in both.

    Args:
        selection: chooses the values that are sent.
        kind: of the values on the wire, "float32" or "float16".
        clip: largest norm of a worker's gradient, before it is added up; it is divided by √workers;
            0: no limit.
        workers: number of workers.
        warm_up: exchanges over which the ratio falls to its final value, in
            config.DGC_WARM_UP_STAGES stages.
    """

    def __init__(
        self, selection: Selection, kind: str = "float32", clip: float = 0.0, workers: int = 1, warm_up: int = 0
    ) -> None:
        self._selection, self._kind, self._warm_up = selection, kind, warm_up
        self._max_norm = clip / workers**0.5
        self._exchanges = 0
        self.velocity = np.zeros(selection.bounds[-1], np.float32)
        self.residual = np.zeros(selection.bounds[-1], np.float32)

    @property
    def ratio(self) -> float:
        """Ratio of the next exchange.

        It is ratio^((stage + 1) / (stages + 1)) in stage 0, 1, … of the warm-up.
        """
        if self._exchanges >= self._warm_up:
            return self._selection.ratio
        stages = config.DGC_WARM_UP_STAGES
        stage = self._exchanges * stages // self._warm_up
        return float(self._selection.ratio ** ((stage + 1) / (stages + 1)))

    def compress(self, gradient: np.ndarray, learning_rate: float, momentum: float = 0.0) -> Sparse:
        """See `Compressor`; the rounding errors of float16 are kept in v."""
        if self._max_norm:
            norm = float(np.sqrt(np.dot(gradient, gradient)))
            if norm > self._max_norm:
                gradient *= np.float32(self._max_norm / norm)
        self.velocity *= np.float32(momentum)
        self.velocity += gradient
        self.residual += self.velocity
        indices = self._selection.of(self.residual, self.ratio)
        self._exchanges += 1
        exact = np.float32(learning_rate) * self.residual[indices]
        values = as_sent(exact, self._kind)
        lost = exact - values  # nothing in float32
        self.residual[indices] = lost / np.float32(learning_rate) if lost.any() else 0
        self.velocity[indices] = 0  # factor masking
        return indices, values

    def state(self) -> dict[str, Any]:
        """See `Compressor`; the warm-up is counted in exchanges."""
        return {"rest": self.residual, "velocity": self.velocity, "exchanges": self._exchanges}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `GradientDropping`."""
        np.copyto(self.residual, state["rest"])
        np.copyto(self.velocity, state["velocity"])
        self._exchanges = state["exchanges"]
