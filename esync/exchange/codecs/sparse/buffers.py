"""Messages on their way into the arrays that they are sent or pulled from."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np


class Rooms:
    """Arrays that hold one message together, one behind the other.

    Args:
        targets: the arrays (float32); what is in them is overwritten.
    """

    def __init__(self, targets: Iterable[np.ndarray]) -> None:
        self._free = [target.view(np.uint8) for target in targets]
        self._split: list[tuple[np.ndarray, list[np.ndarray]]] = []

    def put(self, part: np.ndarray) -> None:
        """Copy the next part (uint8) in."""
        _copy(part, self._next(part.size))

    def take(self, size: int) -> np.ndarray:
        """The next `size` bytes (uint8), to be written until `close`."""
        rooms = self._next(size)
        if len(rooms) == 1:
            return rooms[0]
        aside = np.empty(size, np.uint8)
        self._split.append((aside, rooms))
        return aside

    def close(self) -> None:
        """The message is whole: zeros go behind it."""
        for aside, rooms in self._split:
            _copy(aside, rooms)
        for rest in self._free:
            rest[:] = 0

    def _next(self, size: int) -> list[np.ndarray]:
        """Where the next bytes lie."""
        found = []
        while size:
            room = self._free[0]
            found.append(room[:size])
            size -= found[-1].size
            self._free[0] = room[found[-1].size :]
            if not self._free[0].size:
                del self._free[0]
        return found


def _copy(part: np.ndarray, rooms: list[np.ndarray]) -> None:
    done = 0
    for room in rooms:
        np.copyto(room, part[done : done + room.size])
        done += room.size


class Message(NamedTuple):
    """A message that has yet to be written.

    Attributes:
        size: in bytes.
        write: puts it into rooms; at most once, and before anything else is asked of whom it comes from.
    """

    size: int
    write: Callable[[Rooms], None]

    @classmethod
    def of(cls, parts: list[np.ndarray]) -> "Message":
        """One that is there in parts (uint8), one behind the other."""

        def write(rooms: Rooms) -> None:
            for part in parts:
                rooms.put(part)

        return cls(sum(part.size for part in parts), write)

    def pour(self, targets: Iterable[np.ndarray]) -> None:
        """Write it into arrays (float32) that hold it together, with zeros behind it."""
        rooms = Rooms(targets)
        self.write(rooms)
        rooms.close()

    def whole(self) -> np.ndarray:
        """All of it in one piece (uint8)."""
        target = np.empty(-(-self.size // 4), np.float32)
        self.pour([target])
        return target.view(np.uint8)[: self.size]
