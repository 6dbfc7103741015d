"""Objects for `with` statements."""

from abc import ABC, abstractmethod

from typing_extensions import Self


class Closing(ABC):
    """Base class of objects that are closed at the end of a `with` statement."""

    @abstractmethod
    def close(self) -> None:
        """Free what this object holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
