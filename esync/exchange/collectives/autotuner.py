"""`--collective auto`: chooses a collective by measured times.

Each collective is used for some of the first exchanges of the training, then the fastest is kept.
If it becomes clearly slower, the others are tried again. `Autotuner` makes this decision from the
measured times, which are the same on all ranks, so all ranks choose the same collective.
"""

from collections.abc import Sequence

from ... import config


class Autotuner:
    """Chooses the collective of the next exchange.

    Args:
        names: of the collectives, in the order in which they are tried.

    Attributes:
        current: name of the chosen collective.
        measured: name → shortest measured seconds since the last trials began.
        reason: a phrase that explains the choice; "" during the first trials.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.measured: dict[str, float] = {}
        self._names, self._untried = names, list(names)
        self._times = 0  # of the trial under way
        self._recent = 0.0  # smoothed seconds of the current one, once the trials are over
        self.current = names[0]
        self.reason = ""

    @property
    def settled(self) -> bool:
        """Whether the trials are over."""
        return not self._untried

    def record(self, seconds: float) -> None:
        """Record the seconds of an exchange by `current` on the slowest rank; may change `current`."""
        name = self.current
        if not self.settled:
            self.measured[name] = min(seconds, self.measured.get(name, seconds))
            self._times += 1
            if self._times < config.COLLECTIVE_TRIALS:
                return
            self._times = 0
            self._untried.remove(name)
            self._settle_or_try()
            return
        self._recent += config.COLLECTIVE_SMOOTHING * (seconds - self._recent)
        if self._recent > config.COLLECTIVE_WORSE * self.measured[name] and len(self._names) > 1:
            self.reason = f"{name} now takes {_seconds(self._recent)} instead of {_seconds(self.measured[name])}"
            self.measured.clear()
            self._untried = [name, *(other for other in self._names if other != name)]

    def _settle_or_try(self) -> None:
        if self._untried:
            self.current = self._untried[0]
            return
        order = sorted(self.measured, key=lambda name: self.measured[name])
        self.current = order[0]
        self._recent = self.measured[self.current]
        self.reason = "measured: " + ", ".join(f"{name} {_seconds(self.measured[name])}" for name in order)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"
