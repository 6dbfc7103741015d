"""What the commits of one synchronous round must have in common: the hyper-parameters that the rule is run with.

A round is one step on the mean of all workers, and a step has one learning rate, momentum and weight decay. Which of
several different ones is meant, nobody can know.
"""

import math
from typing import Any

#: Fields of wire.MESSAGE. Where updates are exchanged, the first two are the global learning rate and outer momentum.
COMMON = ("learning_rate", "momentum", "weight_decay")

#: Machines may compute the same schedule with different last bits.
ROUNDING = {"rel_tol": 1e-9, "abs_tol": 1e-12}

ADVICE = (
    "a synchronous round has one of each (with model updates: the global ones): give all workers the same, and change "
    "them in the same round"
)


def disagreement(commit: Any, other: Any, number: int) -> str:
    """Why two commits (wire.MESSAGE) cannot be used in one round, the one of that number; "" where they can."""
    if all(commit[name] == other[name] for name in COMMON):
        return ""  # nearly always
    differences: list[str] = []
    for name in COMMON:
        own, theirs = float(commit[name]), float(other[name])
        if own != theirs and not math.isclose(own, theirs, **ROUNDING):
            said = "not" if differences else f"but worker {other['rank']}"
            differences.append(f"{name.replace('_', ' ')} {own}, {said} {theirs}")
    if not differences:
        return ""
    return f"worker {commit['rank']} committed {'; '.join(differences)} to round {number}: {ADVICE}"
