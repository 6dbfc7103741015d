"""Attributes of an object that its constructor sets, and nothing else."""

from typing import Any, Generic, TypeVar, overload

from typing_extensions import Self

_T = TypeVar("_T")


class SetOnce(Generic[_T]):
    """An attribute that is set once.

    Raises:
        AttributeError: it is set again.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        if instance is None:
            return self
        try:
            value: _T = vars(instance)[self._name]
        except KeyError:
            raise AttributeError(f"{owner.__name__} has no {self._name} yet") from None
        return value

    def __set__(self, instance: Any, value: _T) -> None:
        if self._name in vars(instance):
            name = type(instance).__name__
            raise AttributeError(f"{name}.{self._name} cannot be changed: give it to a new {name}")
        vars(instance)[self._name] = value
