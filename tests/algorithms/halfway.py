"""An algorithm of somebody else, in a file of its own: tests copy it to where they name it."""

from typing import Any

from esync.algorithms import LocalSGD, option


class Halfway(LocalSGD):
    """Local SGD that counts its steps, and has an option."""

    class Options(LocalSGD.Options):
        """Those of Local SGD, and one more."""

        pull: float = option(0.5, ge=0, le=1, help="part of the way that a worker goes")

    steps = 0

    def step(self, batch_size: int) -> None:
        """Count it."""
        self.steps += 1
        super().step(batch_size)

    @property
    def facts(self) -> dict[str, Any]:
        """How many there were."""
        return {**super().facts, "steps": self.steps}
