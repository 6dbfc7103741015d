"""Buffers of sparse messages: the arrays that a message is written into, to be sent or pulled."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np


class MessageBuffers:
    """Arrays that together hold one message, one behind the other.

    Args:
        targets: the arrays (float32); they are overwritten.
    """

    def __init__(self, targets: Iterable[np.ndarray]) -> None:
        self._free = [target.view(np.uint8) for target in targets]
        self._split: list[tuple[np.ndarray, list[np.ndarray]]] = []

    def put(self, part: np.ndarray) -> None:
        """Copy the next part (uint8) of the message into the arrays."""
        _copy(part, self._next(part.size))

    def take(self, size: int) -> np.ndarray:
        """Return the next `size` bytes (uint8), to be written before `close`."""
        buffers = self._next(size)
        if len(buffers) == 1:
            return buffers[0]
        aside = np.empty(size, np.uint8)
        self._split.append((aside, buffers))
        return aside

    def close(self) -> None:
        """Complete the message, and fill the rest with zeros."""
        for aside, buffers in self._split:
            _copy(aside, buffers)
        for rest in self._free:
            rest[:] = 0

    def _next(self, size: int) -> list[np.ndarray]:
        """Return the memory for the next bytes."""
        found = []
        while size:
            buffer = self._free[0]
            found.append(buffer[:size])
            size -= found[-1].size
            self._free[0] = buffer[found[-1].size :]
            if not self._free[0].size:
                del self._free[0]
        return found


def _copy(part: np.ndarray, buffers: list[np.ndarray]) -> None:
    done = 0
    for buffer in buffers:
        np.copyto(buffer, part[done : done + buffer.size])
        done += buffer.size


class SparseMessage(NamedTuple):
    """A message that has yet to be written.

    Attributes:
        size: in bytes.
        write: writes it into buffers; to be called at most once, and before the object that has
            made the message is used again.
    """

    size: int
    write: Callable[[MessageBuffers], None]

    @classmethod
    def of(cls, parts: list[np.ndarray]) -> "SparseMessage":
        """Make a message that is there in parts (uint8), one behind the other."""

        def write(buffers: MessageBuffers) -> None:
            for part in parts:
                buffers.put(part)

        return cls(sum(part.size for part in parts), write)

    def pour(self, targets: Iterable[np.ndarray]) -> None:
        """Write the message into arrays (float32) that together hold it, with zeros behind it."""
        buffers = MessageBuffers(targets)
        self.write(buffers)
        buffers.close()

    def whole(self) -> np.ndarray:
        """Return the message in one piece (uint8)."""
        target = np.empty(-(-self.size // 4), np.float32)
        self.pour([target])
        return target.view(np.uint8)[: self.size]
