"""Attributes that only a constructor sets."""

import copy
from pathlib import Path

import pytest

import esync
from esync.runtime.set_once import SetOnce


class Point:
    """Has one such attribute."""

    x = SetOnce[int]()

    def __init__(self, x: int) -> None:
        self.x = x


def test_attribute_that_is_set_again_is_refused_and_stays() -> None:
    point, other = Point(1), Point(2)
    with pytest.raises(AttributeError, match=r"^Point\.x cannot be changed: give it to a new Point$"):
        point.x = 3
    assert (point.x, other.x, copy.deepcopy(point).x) == (1, 2, 1)


def test_attribute_that_is_not_set_yet_is_missing() -> None:
    assert not hasattr(object.__new__(Point), "x")


@pytest.mark.parametrize("name", ["directory", "resume"])
def test_checkpoints_stay_where_they_are(name: str, tmp_path: Path) -> None:
    checkpoints = esync.Checkpoints(tmp_path)
    with pytest.raises(AttributeError, match=rf"Checkpoints\.{name} cannot be changed"):
        setattr(checkpoints, name, getattr(checkpoints, name))


def test_checkpoints_of_a_run_cannot_be_replaced(tmp_path: Path) -> None:
    run = esync.Run(tmp_path / "logs", background=False)
    with pytest.raises(AttributeError, match=r"Run\.checkpoints cannot be changed"):
        run.checkpoints = esync.Checkpoints(tmp_path)
