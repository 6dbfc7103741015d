"""The scalars of a message: numbers by name in each commit, and how a round combines them.

A round is one step on the mean of all workers, and a step has one learning rate, momentum and
weight decay: of several different ones, nobody can know which is meant. Other scalars are combined.
The samples of a commit are no scalar of this kind, but an exact integer that every commit has.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Way of scalars that must be the same in all commits of a round.
COMMON = "common"

#: Way to combine scalars → the function that combines the values that workers have sent.
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
        way: how it is combined; see WAYS.
        default: its value where a worker does not send one; NaN: it then does not count.
    """

    way: str
    default: float = 0.0


#: Where updates are exchanged, the first two are the global learning rate and the outer momentum.
BUILT_IN = {
    "learning_rate": Scalar(COMMON),
    "momentum": Scalar(COMMON),
    "weight_decay": Scalar(COMMON),
    "gradient_scale": Scalar("mean", 1.0),  # the payload is this multiple of the mean gradient of a batch
    "pace": Scalar("minimum", math.nan),  # seconds of an iteration on this worker
}

#: Built-in scalars whose combined values come back to the workers with the status.
TOLD = ("pace",)

#: Tolerance for common scalars: machines may compute a schedule with different last bits.
ROUNDING = {"rel_tol": 1e-9, "abs_tol": 1e-12}

ADVICE = (
    "a synchronous round has one of each (with model updates: the global ones): give all workers the same, and change "
    "them in the same round"
)


class Scalars:
    """The scalars of one run, with each worker's latest value of those that come back.

    Args:
        added: name of each scalar beside the built-in ones → how it is combined.
        slots: number of worker slots.
    """

    def __init__(self, added: Mapping[str, str], slots: int) -> None:
        ways = {**{name: scalar.way for name, scalar in BUILT_IN.items()}, **added}
        self._common = [name for name, way in ways.items() if way == COMMON]
        self._combined = {name: WAYS[way] for name, way in ways.items() if way != COMMON or name in added}
        self._latest = {name: np.full(slots, math.nan) for name in (*TOLD, *added)}
        self._said: set[str] = set()  # names of those that some worker has ever said

    def disagreement(self, commit: Any, other: Any, number: int) -> str:
        """Return why two commits cannot be used in one round; "" where they can.

        Args:
            commit: one of them (wire.MESSAGE).
            other: the other one.
            number: of the round.
        """
        if all(commit[name] == other[name] for name in self._common):
            return ""  # the usual case
        differences: list[str] = []
        for name in self._common:
            own, theirs = float(commit[name]), float(other[name])
            unsaid = math.isnan(own) and math.isnan(theirs)
            if own != theirs and not unsaid and not math.isclose(own, theirs, **ROUNDING):
                said = "not" if differences else f"but worker {other['rank']}"
                differences.append(f"{name.replace('_', ' ')} {own}, {said} {theirs}")
        if not differences:
            return ""
        return f"worker {commit['rank']} committed {'; '.join(differences)} to round {number}: {ADVICE}"

    def terms(self, commits: Sequence[Any]) -> Any:
        """Return the terms of a round: those of the first commit, with the combined scalars."""
        terms = commits[0].copy()
        for name, way in self._combined.items():
            terms[name] = _combine(way, (float(commit[name]) for commit in commits))
        return terms

    def note(self, commits: Iterable[Any]) -> None:
        """Note that these commits have been used."""
        for commit in commits:
            for name, latest in self._latest.items():
                value = commit[name]
                if value == value:  # not NaN
                    self._said.add(name)
                if name in self._said:
                    latest[commit["rank"]] = value

    def combined(self, ranks: Sequence[int] | np.ndarray) -> dict[str, float]:
        """Return the combined latest values of these workers; NaN where none has sent any."""
        return {
            name: _combine(self._combined[name], values[ranks].tolist()) if name in self._said else math.nan
            for name, values in self._latest.items()
        }


def check_added(added: Mapping[str, str], taken: Iterable[str]) -> None:
    """Check the scalars that an algorithm adds.

    Raises:
        ValueError: a name is taken, or there is no such way to combine.
    """
    for name, way in added.items():
        if name in taken:
            raise ValueError(f"a scalar cannot be named {name!r}: messages have a field of that name")
        if way not in WAYS:
            raise ValueError(f"scalar {name!r} is to be combined by {way!r}, but should be by one of {', '.join(WAYS)}")


def _combine(way: Callable[[Sequence[float]], float], values: Iterable[float]) -> float:
    said = [value for value in values if value == value]  # not NaN
    return way(said) if said else math.nan
