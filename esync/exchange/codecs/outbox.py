"""The outbox: packed answers, where workers pull them, or kept until a worker shows where.

An answer to all workers has in its headers the step that it leads to: the number of times that the
weights have changed on that server. A worker that was held up, and left out meanwhile, may find the
answer of a later round there.
"""

from collections.abc import Callable

import numpy as np

from ..base import SlotLostError
from ..protocol import wire


def step_of(array: np.ndarray, at: int) -> int:
    """Return the step that an array of an answer leads to.

    Where the weights are at step `at`, it has to be that one or the next.

    Raises:
        SlotLostError: it leads to another one.
    """
    step = int(wire.header_of(array)["sequence"])
    if step not in (at, at + 1):
        raise SlotLostError(f"the servers are at step {step}, where this worker expects {at + 1}: start it again")
    return step


class Outbox:
    """Arrays with headers, by their keys.

    The store gives a key its memory when a worker pushes it for the first time; an answer may be
    there before that.
    """

    def __init__(self) -> None:
        self._stored: dict[int, np.ndarray] = {}
        self._waiting: dict[int, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that can be pulled."""
        return sum(array.nbytes for array in self._stored.values())

    def open(self, key: int, stored: np.ndarray) -> None:
        """Take the array from which a key is pulled from now on."""
        self._stored[key] = stored
        if key in self._waiting:
            np.copyto(stored, self._waiting.pop(key))

    def values(self, key: int, elements: int) -> np.ndarray:
        """Return the memory for the values of an answer's array, behind its header."""
        if key not in self._stored and key not in self._waiting:
            self._waiting[key] = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
        return self._array(key)[wire.HEADER_ELEMENTS :]

    def stamp(self, key: int, step: int, place: int) -> None:
        """Write the header of an array whose values have been written."""
        wire.stamp(self._array(key), wire.WEIGHTS, 0, 0, step, place)

    def forget(self, mine: Callable[[int], bool] = lambda key: True) -> None:
        """Discard the answers with these keys that wait for a worker to show where."""
        self._waiting = {key: array for key, array in self._waiting.items() if not mine(key)}

    def _array(self, key: int) -> np.ndarray:
        return self._stored[key] if key in self._stored else self._waiting[key]
