"""The arrays of packed answers: from where workers pull them, or aside until a worker has shown where that is."""

from collections.abc import Callable

import numpy as np

from ..protocol import wire


class Outbox:
    """Arrays with headers, by their keys.

    The store gives a key its memory when a worker pushes it for the first time; an answer may be there before.
    """

    def __init__(self) -> None:
        self._stored: dict[int, np.ndarray] = {}
        self._waiting: dict[int, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that can be pulled."""
        return sum(array.nbytes for array in self._stored.values())

    def open(self, key: int, stored: np.ndarray) -> None:
        """A key is pulled from here, from now on."""
        self._stored[key] = stored
        if key in self._waiting:
            np.copyto(stored, self._waiting.pop(key))

    def values(self, key: int, elements: int) -> np.ndarray:
        """Where the values of an answer's array are put, behind its header."""
        if key not in self._stored and key not in self._waiting:
            self._waiting[key] = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
        return self._array(key)[wire.HEADER_ELEMENTS :]

    def stamp(self, key: int, step: int, place: int) -> None:
        """Write the header of an array whose values are there."""
        wire.stamp(self._array(key), wire.WEIGHTS, 0, 0, step, place)

    def forget(self, mine: Callable[[int], bool] = lambda key: True) -> None:
        """Throw away what waits to be pulled with these keys."""
        self._waiting = {key: array for key, array in self._waiting.items() if not mine(key)}

    def _array(self, key: int) -> np.ndarray:
        return self._stored[key] if key in self._stored else self._waiting[key]
