"""Scalars: named numbers in every commit, and how they are combined over the commits of a round.

A round is one step on the mean of all workers, with one learning rate, momentum and weight decay,
so these must be the same in all commits. Other scalars are combined. The number of samples is not a
scalar but a field of its own, because it is an exact integer.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np

#: The way of combining scalars that must be the same in all commits of a round.
COMMON = "common"

#: Way of combining → the function that combines the values that workers have sent.
WAYS: dict[str, Callable[[Sequence[float]], float]] = {
    COMMON: lambda values: values[0],
    "mean": lambda values: sum(values) / len(values),
    "sum": sum,
    "minimum": min,
    "maximum": max,
}


@dataclass(frozen=True)
class Scalar:
    """A scalar that every message has.

    Attributes:
        way: how it is combined; a key of WAYS.
        default: its value if a worker does not send one; NaN: that worker is left out.
    """

    way: str
    default: float = 0.0


#: With model updates, the first two are the global learning rate and the outer momentum.
BUILT_IN = {
    "learning_rate": Scalar(COMMON),
    "momentum": Scalar(COMMON),
    "weight_decay": Scalar(COMMON),
    "gradient_scale": Scalar("mean", 1.0),  # the payload is this multiple of the mean gradient of a batch
    "pace": Scalar("minimum", math.nan),  # seconds of an iteration on this worker
}


#: Added scalar: number of a payload's compression; the answer has the largest one of its round.
COMPRESSION = "compression"


def steps_scalar(vector: str) -> str:
    """Return the name of the scalar with the number of steps of a vector's rule, this one included.

    It exists where several optimizers step in turn; elsewhere every change of the model is a step of
    the weights' rule.
    """
    return f"steps of {vector}"


def turn(message: Any, added: Collection[str], vector: str, changes: int) -> int:
    """Return the number of steps of a vector's rule before this one; see `rules.Step.turn`.

    Args:
        message: with the scalars of the round.
        added: names of its scalars other than the built-in ones.
        vector: name of the vector.
        changes: number of changes of the model before this one.
    """
    name = steps_scalar(vector)
    return int(message[name]) - 1 if name in added else changes


#: Built-in scalars whose combined values are part of the status.
PUBLISHED = ("pace",)

#: Tolerance for common scalars: machines may compute a schedule with different last bits.
ROUNDING = {"rel_tol": 1e-9, "abs_tol": 1e-12}

ADVICE = (
    "a synchronous round has one of each (with model updates: the global ones): give all workers the same, and change "
    "them in the same round"
)


class Scalars:
    """The scalars of one run. Keeps each worker's latest value of those shown in the status.

    Args:
        added: name of each scalar other than the built-in ones → how it is combined.
        slots: number of worker slots.
    """

    def __init__(self, added: Mapping[str, str], slots: int) -> None:
        ways = {**{name: scalar.way for name, scalar in BUILT_IN.items()}, **added}
        self._common = [name for name, way in ways.items() if way == COMMON]
        self._combined = {name: WAYS[way] for name, way in ways.items() if way != COMMON or name in added}
        self._latest = {name: np.full(slots, math.nan) for name in (*PUBLISHED, *added)}
        self._sent: set[str] = set()  # names of the scalars that any worker has sent so far

    def disagreement(self, commit: Any, other: Any, number: int) -> str:
        """Return why two commits cannot be used in the same round; "" if they can.

        Args:
            commit: of one worker (wire.MESSAGE).
            other: of another worker.
            number: of the round.
        """
        if all(commit[name] == other[name] for name in self._common):
            return ""  # the usual case
        differences: dict[str, tuple[float, float]] = {}
        for name in self._common:
            value, expected = float(commit[name]), float(other[name])
            missing = math.isnan(value) and math.isnan(expected)
            if value != expected and not missing and not math.isclose(value, expected, **ROUNDING):
                differences[name] = value, expected
        if not differences:
            return ""
        advice = ADVICE
        if steps := {name: pair for name, pair in differences.items() if name.startswith(steps_scalar(""))}:
            differences, advice = steps, "step the optimizers in the same order, and equally often, on all workers"
        conjunctions = chain([f"but worker {other['rank']}"], repeat("not"))
        text = "; ".join(
            f"{name.replace('_', ' ')} {value}, {conjunction} {expected}"
            for conjunction, (name, (value, expected)) in zip(conjunctions, differences.items(), strict=False)
        )
        return f"worker {commit['rank']} committed {text} to round {number}: {advice}"

    def terms(self, commits: Sequence[Any]) -> Any:
        """Return a copy of a round's first commit with the combined scalars of all of them."""
        terms = commits[0].copy()
        for name, way in self._combined.items():
            terms[name] = _combine(way, (float(commit[name]) for commit in commits))
        return terms

    def note(self, commits: Iterable[Any]) -> None:
        """Remember the scalars of commits that have been used."""
        for commit in commits:
            for name, latest in self._latest.items():
                value = commit[name]
                if value == value:  # not NaN
                    self._sent.add(name)
                if name in self._sent:
                    latest[commit["rank"]] = value

    def resume(self, values: Mapping[str, float]) -> None:
        """Go on with the counts of an earlier job, the added scalars that all workers have in common."""
        for name in self._latest.keys() & set(self._common) & values.keys():
            self._latest[name][:] = values[name]
            self._sent.add(name)

    def combined(self, ranks: Sequence[int] | np.ndarray) -> dict[str, float]:
        """Combine the latest values of these workers; NaN if none of them has sent one."""
        return {
            name: _combine(self._combined[name], values[ranks].tolist()) if name in self._sent else math.nan
            for name, values in self._latest.items()
        }


def check_added(added: Mapping[str, str], reserved: Iterable[str]) -> None:
    """Check the scalars that an algorithm adds.

    Args:
        added: name of each scalar → how it is combined.
        reserved: names of the other fields of messages.

    Raises:
        ValueError: a name is reserved, or a way of combining is unknown.
    """
    for name, way in added.items():
        if name in reserved:
            raise ValueError(f"a scalar cannot be named {name!r}: messages have a field of that name")
        if way not in WAYS:
            raise ValueError(f"scalar {name!r} is to be combined by {way!r}, but should be by one of {', '.join(WAYS)}")


def _combine(way: Callable[[Sequence[float]], float], values: Iterable[float]) -> float:
    sent = [value for value in values if value == value]  # not NaN
    return way(sent) if sent else math.nan
