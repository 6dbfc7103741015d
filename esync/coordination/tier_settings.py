"""What a job asks of its state server beyond Algorithm 2: tiers, and settings that are chosen for each round."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TierSettings:
    """How the workers of a job are divided.

    Attributes:
        tiers: tier of each rank, from 0; empty: all are in the first; None: by speed (`divide`).
        leave_out: ranks that are left out; None: by share of the speed (`left_out`).
        exchange_share: largest share of a round for an exchange, where settings are chosen in every
            round (`automatic_settings`), between 0 and 1; with overlap, the rest of the round hides the
            exchange. None: none are chosen.
        chooses_iterations: whether the iterations of the slowest worker are chosen.
        compressions: compressions to choose from, the finest one first → bits of a value; empty: the
            compression is given.
    """

    tiers: tuple[int, ...] | None = None
    leave_out: tuple[int, ...] | None = ()
    exchange_share: float | None = None
    chooses_iterations: bool = True
    compressions: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "TierSettings":
        """Return the settings with these fields, as JSON holds them."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**values)

    @property
    def divides(self) -> bool:
        """Whether there may be workers that rounds do not wait for."""
        return self.tiers != () or self.leave_out != ()

    def check(self, workers: int) -> None:
        """Raise ValueError if the settings do not fit this many workers."""
        if self.tiers and len(self.tiers) != workers:
            raise ValueError(f"--tiers: tiers of {len(self.tiers)} ranks were given, but there are {workers} workers")
        if strange := [rank for rank in self.leave_out or () if not 0 < rank < workers]:
            raise ValueError(
                f"--leave-out: rank {strange[0]} cannot be left out: this job has the ranks 0 to {workers - 1}, and "
                "rank 0 evaluates and writes the model"
            )
        bits = list(self.compressions.values())
        if bits != sorted({*bits} - {math.inf}, reverse=True):
            raise ValueError(f"compressions must have finite numbers of bits, the largest first, not {bits}")

    @property
    def chooses_workers(self) -> bool:
        """Whether the workers that rounds wait for are chosen, beside the iterations of the slowest one."""
        return self.tiers is None and self.chooses_iterations
