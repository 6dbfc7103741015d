"""What an evaluation returns: the value of the metric, and named parts such as the recall of each class."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from .errors import EvaluationError, enumeration
from .metric import Metric, finite
from .output import is_label, printable
from .user_values import one_line, single_number

#: Beginning of the names of recalls: the class follows.
RECALL = "recall/"
#: Most parts of an evaluation.
MAX_PARTS = 200


@dataclass(frozen=True)
class EvaluationResult:
    """The result of an evaluation.

    Attributes:
        value: value of the metric.
        parts: further finite numbers, by name; `recall/CLASS` is the share of a class's test samples
            that are classified correctly.
        seconds: how long it took; None if that was not measured.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None


def recalls(parts: Mapping[str, float | None]) -> dict[str, float]:
    """Return the recall of each class among the parts of an evaluation, as far as it is known."""
    return {name: value for name, value in parts.items() if name.startswith(RECALL) and value is not None}


def lowest_recall(parts: Mapping[str, float | None]) -> str:
    """Return the lowest recall and the classes that have it, in words; "" if no recall is known."""
    by_class = recalls(parts)
    lowest = min(by_class.values(), default=0.0)
    classes = [printable(name.removeprefix(RECALL)) for name, value in by_class.items() if value == lowest]
    return f"lowest recall {lowest:.3f} (class {enumeration(classes, 5)})" if by_class else ""


def significant(value: float) -> float:
    """Round a part to the six digits that logs have."""
    return float(f"{value:.6g}")


def user_result(returned: object, metric: Metric, function: str) -> EvaluationResult:
    """Return the result of a user's function.

    Args:
        returned: a number; or a mapping of names to numbers, in which the metric has its name, and the
            others are parts. A mapping in it stands for its numbers, as `name/key`. Parts that are
            not finite are left out.
        metric: the metric that the function computes.
        function: its name, for messages.

    Raises:
        EvaluationError: it is something else, or an accuracy or a recall that is not from 0 to 1.
    """
    parts: dict[str, float] = {}
    if isinstance(returned, Mapping):
        for name, value in _flat(returned, function):
            if name in parts:
                raise EvaluationError(f"evaluate should return a mapping, but {function} has named {name!r} twice")
            parts[name] = value
        if metric.name not in parts:
            raise EvaluationError(
                f"evaluate should return a number, or a mapping with the metric, {metric.name!r}, but {function} has "
                f"returned one of {enumeration(list(parts), 8) or 'nothing'}: name the metric as it is named there, by "
                'esync.Run(…, metric=("loss", "min"))'
            )
        if len(parts) > MAX_PARTS + 1:
            raise EvaluationError(
                f"evaluate should return up to {MAX_PARTS} parts beside the metric, but {function} has returned "
                f"{len(parts) - 1}: return their mean, lowest or highest, or the most important ones"
            )
        value = parts.pop(metric.name)
    elif (number := single_number(returned)) is not None:
        value = _float(number)
    else:
        raise EvaluationError(
            "evaluate should return a number, or a mapping of names to numbers, but "
            f"{function} has returned {_shown(returned)}{_hint(returned)}"
        )
    if metric.is_accuracy and not metric.possible(value):
        remedy = 'divide a percentage by 100; if it is something else, say so by esync.Run(…, metric=("loss", "min"))'
        if math.isnan(value):
            remedy = "MXNet's metrics return it where they have counted no sample"
        raise EvaluationError(
            f"evaluate should return the accuracy, {metric.expected()}, but {function} has returned {value:g}: {remedy}"
        )
    finite_parts = ((name, finite(part)) for name, part in parts.items())
    rounded = {name: significant(part) for name, part in finite_parts if part is not None}
    for name, recall in recalls(rounded).items():
        if not 0 <= recall <= 1:
            raise EvaluationError(
                f"evaluate should return recalls, 0 to 1, but the {name!r} of {function} is {recall:g}: divide "
                "percentages by 100, leave out classes without samples, and give another name to what is no recall of "
                "a class"
            )
    return EvaluationResult(value, rounded)


def _flat(mapping: Mapping[Any, Any], function: str, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a mapping, and of mappings in it, with their names."""
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        # Classes are often numbers; anything else is likely to be no name.
        if not isinstance(key, str | Integral) or isinstance(key, bool) or not (is_label(name) and is_label(str(key))):
            remedy = ": convert the number of a class by int(…)" if isinstance(key, Real) else ""
            raise EvaluationError(
                "evaluate should name its numbers by whole numbers, or by one line of up to 60 printable characters "
                f"without spaces around it, but {function} has returned "
                f"{_shown(name if isinstance(key, str) else key)} as a name{remedy}"
            )
        if isinstance(value, Mapping):
            yield from _flat(value, function, f"{name}/")
        elif (number := single_number(value)) is not None:
            yield name, _float(number)
        else:
            several = f": name its numbers, for instance by {{{name!r}: dict(enumerate(values))}}"
            hint = several if hasattr(value, "__len__") and not isinstance(value, str) else ""
            raise EvaluationError(
                f"evaluate should return numbers, but the {name!r} of {function} is {_shown(value)}{hint}"
            )


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _shown(value: object) -> str:
    return one_line(value)[:200]


def _hint(returned: object) -> str:
    """Return how to return what a metric of Gluon or Keras, or pandas, has returned, as the end of a message."""
    if hasattr(returned, "to_dict"):
        return f" (a {type(returned).__name__} is a mapping as to_dict())"
    match returned:
        case (str(), _):
            return " (of what a metric's get() returns, the value is the second: get()[1])"
        case ([str(), *_], [*_]):
            return " (what get() of several metrics returns is a mapping as dict(zip(*get())))"
        case [(str(), _), *_]:
            return " (pairs of a name and a number are a mapping as dict(pairs))"
        case [*_]:
            return " (numbers of which one is the metric need names: a mapping)"
    return ""
