"""One iteration that leaves no trace: weights, statistics and the optimizer's state are put back."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .flat_arrays import stored_values

#: What owners of state share with others, and what is not copied for that.
_SHARED = frozenset({"param_dict", "optimizer"})


@contextmanager
def undone(parameters: Iterable[Any], owners: Iterable[Any]) -> Iterator[None]:
    """Put back, at the end of the with statement, what an iteration changes.

    Args:
        parameters: Gluon parameters that have their values.
        owners: objects whose attributes are the state of the optimizer. Wherever it is kept (Nadam
            and the schedules have some of their own), the iteration works on a copy.
    """
    values = [(parameter, stored_values(parameter).copy()) for parameter in parameters]
    attributes = [(owner.__dict__, dict(owner.__dict__)) for owner in owners]
    for state, _ in attributes:
        state.update(copy.deepcopy({name: value for name, value in state.items() if name not in _SHARED}))
    try:
        yield
    finally:
        for parameter, value in values:
            parameter.set_data(value)
        for state, original in attributes:
            state.clear()
            state.update(original)
