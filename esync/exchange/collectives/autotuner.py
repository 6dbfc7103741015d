"""Which collective to use for the next exchange: a pure decision over predicted and measured times.

All ranks decide alike, because they are told the same numbers. The collectives that the model thinks near the best are
each used for the first few exchanges, which are worth no less for it; the fastest stays. Where it has become clearly
slower than it was, the others get another chance.
"""

from collections.abc import Mapping

from ... import config


class Choice:
    """Decides.

    Args:
        predicted: name → seconds by the cost model.

    Attributes:
        current: the name.
        measured: name → shortest measured seconds since the last look at it.
        reason: why, in words.
    """

    def __init__(self, predicted: Mapping[str, float]) -> None:
        self._predicted = dict(predicted)
        order = sorted(predicted, key=lambda name: predicted[name])
        near = [name for name in order if predicted[name] <= config.COLLECTIVE_NEAR * predicted[order[0]]]
        self.measured: dict[str, float] = {}
        self._near, self._untried = near, list(near)
        self._times = 0  # of the trial under way
        self._recent = 0.0  # smoothed seconds of the current one, once the trials are over
        self.current = order[0]
        self.reason = "predicted: " + ", ".join(f"{name} {_seconds(predicted[name])}" for name in order)

    @property
    def settled(self) -> bool:
        """Whether no trial is under way."""
        return not self._untried

    def took(self, seconds: float) -> None:
        """The exchange by the current one has taken so long on the slowest rank; `current` may be another one now."""
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
        if self._recent > config.COLLECTIVE_WORSE * self.measured[name] and len(self._near) > 1:
            self.reason = f"{name} has come to take {_seconds(self._recent)} instead of {_seconds(self.measured[name])}"
            self.measured.clear()
            self._untried = [name, *(each for each in self._near if each != name)]

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
