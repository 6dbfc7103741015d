"""The numbers that a program logs between two steps; see `esync.Trainer.log`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runtime.logged_values import LoggedValueError, check_name
from ..runtime.mxnet_import import mx
from ..runtime.phase_timer import PhaseTimer


class LoggedNumbers:
    """Keeps numbers until the step that ends their iteration; some may not be computed before."""

    def __init__(self) -> None:
        self._names: set[str] = set()  # of the whole run
        self._pending: list[tuple[str, Any]] = []

    def add(self, values: Mapping[str, Any], metric: str, keep: bool) -> None:
        """Add numbers.

        Args:
            values: name → number, or array of one element.
            metric: name of the run's metric, which no number may have.
            keep: False: only check them.

        Raises:
            LoggedValueError: a name or a value cannot be used.
        """
        for name, value in values.items():
            check_name(name, self._names, [metric])
            self._names.add(name)
            if isinstance(value, mx.nd.NDArray) and value.stype == "default" and value.size == 1:
                with mx.util.np_shape(True):  # without which NumPy's arrays of shape () cannot be copied
                    value = value.detach().copy()  # the program may change it in place before it is read
            else:
                value = _number(name, value)
            if keep:
                self._pending.append((name, value))

    def record(self, recorder: PhaseTimer) -> None:
        """Add the pending numbers to the round."""
        for name, value in self._pending:
            recorder.log(name, _number(name, value))

    def clear(self) -> None:
        """Forget the pending numbers."""
        self._pending.clear()


def _number(name: str, value: Any) -> float:
    """Return a value that a program logs as a number, or refuse it by its name."""
    try:
        array = value.asnumpy() if isinstance(value, mx.nd.NDArray) else np.asarray(value)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.size != 1 or array.dtype.kind not in "biuf":
        shown = f"an array of {value.dtype}, {value.shape}" if hasattr(value, "shape") else f"{value!r:.60}"
        raise LoggedValueError(
            f"trainer.log: {name} is {shown}, but should be one number: a Python number, or a NumPy or MXNet array "
            "of one element, such as the loss's mean()"
        )
    return float(array.reshape(()))
