"""The outbox of a server: packed answers, which workers pull.

The headers of an answer to all workers contain the step that it leads to, the number of changes of
the weights on that server. So a slow worker that was left out notices if it has pulled the answer
of a later round.
"""

from collections.abc import Callable

import numpy as np

from ..base import SlotLostError
from ..protocol import wire


def step_of(array: np.ndarray, present: int) -> int:
    """Return the step that an array of an answer leads to.

    Raises:
        SlotLostError: the step is neither `present`, that of the present weights, nor the next one.
    """
    step = int(wire.header_of(array)["sequence"])
    if step not in (present, present + 1):
        raise SlotLostError(f"the servers are at step {step}, where this worker expects {present + 1}: start it again")
    return step


class Outbox:
    """Arrays of answers, with headers, by key.

    A key has memory in the store from a worker's first push on. Answers before that are kept until
    `open`.
    """

    def __init__(self) -> None:
        self._stored: dict[int, np.ndarray] = {}
        self._waiting: dict[int, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that can be pulled."""
        return sum(array.nbytes for array in self._stored.values())

    def open(self, key: int, stored: np.ndarray) -> None:
        """Bind a key to the array from which workers pull it."""
        self._stored[key] = stored
        if key in self._waiting:
            np.copyto(stored, self._waiting.pop(key))

    def values(self, key: int, elements: int) -> np.ndarray:
        """Return the memory for the values of an answer's array, without its header."""
        if key not in self._stored and key not in self._waiting:
            self._waiting[key] = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
        return self._array(key)[wire.HEADER_ELEMENTS :]

    def stamp(self, key: int, step: int, bucket: int) -> None:
        """Write the header of an array whose values have been written."""
        wire.stamp(self._array(key), wire.WEIGHTS, 0, 0, step, bucket)

    def forget(self, matches: Callable[[int], bool] = lambda key: True) -> None:
        """Discard the arrays with matching keys that are not bound yet."""
        self._waiting = {key: array for key, array in self._waiting.items() if not matches(key)}

    def _array(self, key: int) -> np.ndarray:
        return self._stored[key] if key in self._stored else self._waiting[key]
