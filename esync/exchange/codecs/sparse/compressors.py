"""Compressors, which choose the part of a worker's gradients to send; one class per method.

Every compressor works on flat float32 vectors (weight decay is in the gradient already), keeps its
own state, and returns the sparse step that the server is to subtract from the weights: it is
multiplied by the learning rate here, so that schedules reach every worker at its own next gradient.
What is not sent is kept, to the last bit.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .... import config
from . import Sparse
from .selection import Selection


def as_sent(values: np.ndarray, kind: str) -> np.ndarray:
    """Return these values (float32) as they arrive when sent as float32 or float16.

    As float16 they are limited to its largest number.
    """
    if kind == "float32":
        return values
    most = np.finfo(np.float16).max
    return np.clip(values, -most, most).astype(np.float16).astype(np.float32)


class Compressor(Protocol):
    """Turns gradients into sparse steps."""

    def compress(self, gradient: np.ndarray, learning_rate: float, momentum: float) -> Sparse:
        """Take in a gradient, and return the step to send.

        Args:
            gradient: float32, flat; it is overwritten.
            learning_rate: multiplies the gradient.
            momentum: of the method.

        Returns:
            The step with its values as they arrive.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return what is kept for later steps, for a checkpoint."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state` has returned.

        Raises:
            KeyError, ValueError: it is that of another compressor.
        """
        ...


class GradientDropping:
    """GD-async (DGS paper, Algorithm 1): send the largest accumulated gradients.

    r ← r + η·g; the largest of r are sent, the rest stays in r. There is no momentum.

    Args:
        selection: chooses the values that are sent.
        kind: of the values on the wire, "float32" or "float16".
    """

    def __init__(self, selection: Selection, kind: str = "float32") -> None:
        self._selection, self._kind = selection, kind
        self.rest = np.zeros(selection.bounds[-1], np.float32)

    def compress(self, gradient: np.ndarray, learning_rate: float, momentum: float = 0.0) -> Sparse:
        """See `Compressor`."""
        gradient *= np.float32(learning_rate)
        self.rest += gradient
        places = self._selection.of(self.rest)
        whole = self.rest[places]
        values = as_sent(whole, self._kind)
        self.rest[places] = self._left(whole, values, momentum)
        return places, values

    def state(self) -> dict[str, Any]:
        """See `Compressor`."""
        return {"rest": self.rest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Compressor`."""
        np.copyto(self.rest, state["rest"])

    def _left(self, whole: np.ndarray, values: np.ndarray, momentum: float) -> np.ndarray:
        """Return what stays of entries of which `values` are sent."""
        return whole - values


class SAMomentum(GradientDropping):
    """DGS (paper, Algorithm 3, Equations 14 to 16): momentum only for what is sent.

    The paper's division is left out: w = c + η·g; the largest of w are sent; c (here `rest`) ← m·w
    where it was sent, w where it was not. An entry that is silent for T steps is multiplied by m once in that
    time, as in one step with a T times larger batch. With m = 0 this is gradient dropping, with
    everything sent it is SGD with momentum (η inside).
    """

    def _left(self, whole: np.ndarray, values: np.ndarray, momentum: float) -> np.ndarray:
        # Rounding errors stay as they are, as if they had not been selected.
        return np.float32(momentum) * values + (whole - values)


class DeepGradientCompression:
    """DGC-async: momentum correction and factor masking.

    u ← m·u + g; v ← v + u; the largest of v are sent times η, and forgotten in both.

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
        self._most = clip / workers**0.5
        self._exchanges = 0
        self.velocity = np.zeros(selection.bounds[-1], np.float32)
        self.rest = np.zeros(selection.bounds[-1], np.float32)

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
        if self._most:
            norm = float(np.sqrt(np.dot(gradient, gradient)))
            if norm > self._most:
                gradient *= np.float32(self._most / norm)
        self.velocity *= np.float32(momentum)
        self.velocity += gradient
        self.rest += self.velocity
        places = self._selection.of(self.rest, self.ratio)
        self._exchanges += 1
        exact = np.float32(learning_rate) * self.rest[places]
        values = as_sent(exact, self._kind)
        lost = exact - values  # nothing in float32
        self.rest[places] = lost / np.float32(learning_rate) if lost.any() else 0
        self.velocity[places] = 0  # factor masking
        return places, values

    def state(self) -> dict[str, Any]:
        """See `Compressor`; the warm-up is counted in exchanges."""
        return {"rest": self.rest, "velocity": self.velocity, "exchanges": self._exchanges}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Compressor`."""
        np.copyto(self.rest, state["rest"])
        np.copyto(self.velocity, state["velocity"])
        self._exchanges = state["exchanges"]
