"""Tests of which only some variants run without --long."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def variants(values: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """Return parameters for a test, all of which but the quick ones are marked `long`.

    Args:
        values: of the parameter; tuples are values of several parameters.
        quick: those of the values, or of the first ones in the tuples, that always run.
    """
    return [
        pytest.param(*parameters, marks=() if parameters[0] in quick else pytest.mark.long)
        for parameters in (value if isinstance(value, tuple) else (value,) for value in values)
    ]
