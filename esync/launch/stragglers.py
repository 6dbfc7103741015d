"""The part of a description that makes a worker a straggler on purpose; launch and simulate do the same with it."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..runtime.straggler_injection import Spell
from .fields import LATENCIES, Section, error, quantity


class Straggle(Section):
    """For a while, or again and again, this worker takes longer. All but `delay` in seconds of the run."""

    kind: Literal["compute", "network"]
    delay: Annotated[float, quantity(LATENCIES, "30ms")]  # of every iteration, or of every message to a server
    at: float = Field(ge=0)
    lasting: float = Field(gt=0)
    every: float | None = Field(default=None, gt=0)  # from one beginning to the next
    times: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _apart(self) -> "Straggle":
        if (self.every is None) != (self.times == 1):
            raise error("a straggler several times needs both: every (seconds) and times", "times")
        if self.every is not None and self.every < self.lasting:
            raise error("it should be over before it begins again", "every")
        return self


def spells(section: Iterable[Straggle]) -> tuple[Spell, ...]:
    """One after the other."""
    return tuple(
        Spell(each.kind, each.delay, each.at + number * (each.every or 0.0), each.lasting)
        for each in section
        for number in range(each.times)
    )
