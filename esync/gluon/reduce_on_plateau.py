"""A learning rate that falls when the metric of the run has stopped improving, alike on all workers.

Rank 0 evaluates and decides. Each exchange carries the number of reductions that its worker knows
of, and brings the highest to all workers; so they change their rates in the same round.
"""

import math
from typing import Literal

from ..exchange import Result
from ..runtime.metric import Metric
from .common_lr_scheduler import GluonLRScheduler

#: Scalar of an exchange: the number of reductions; the maximum of all workers holds.
REDUCTIONS = "rate_reductions"


class ReduceOnPlateau(GluonLRScheduler):
    """Multiplies the learning rate by a factor when the metric has stopped improving.

        schedule = esync.ReduceOnPlateau(factor=0.1, patience=5, base_lr=0.1)
        run = esync.Run(evaluate=accuracy, every=10)
        trainer = esync.Trainer(params, "sgd", {"lr_scheduler": schedule}, run=run)

    The metric, and whether it should be high or low, are those of `esync.Run`, which rank 0
    evaluates. All workers change their rates after the exchange that follows the evaluation: in
    synchronous modes in the same round, in asynchronous ones each with its next exchange. A run
    that goes on from a checkpoint has the rate and the best value of that time. A replacement has the
    rate of the others; that of rank 0 has the best value of its last checkpoint, or none.

    Args:
        factor: what the rate is multiplied by; above 0 and below 1.
        patience: successive evaluations without an improvement that are tolerated.
        threshold: smallest change that is an improvement.
        threshold_mode: "rel": `threshold` is a share of the best value; "abs": it is a difference.
        cooldown: evaluations after a reduction that do not count.
        min_lr: the lowest rate.
        base_lr: the first rate; the optimizer's learning_rate replaces it.

    Attributes:
        reductions: number of reductions so far, on all workers.

    Raises:
        ValueError: an argument cannot be used; or, from the trainer, its run evaluates nothing.
    """

    def __init__(
        self,
        factor: float = 0.1,
        patience: int = 10,
        *,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        base_lr: float = 0.01,
    ) -> None:
        super().__init__(base_lr)
        if not 0 < factor < 1:
            raise ValueError(f"factor={factor!r}: it should be above 0 and below 1")
        for name, count in (("patience", patience), ("cooldown", cooldown)):
            if not isinstance(count, int) or count < 0:
                raise ValueError(f"{name}={count!r}: it should be a number of evaluations, 0 or more")
        for name, value in (("threshold", threshold), ("min_lr", min_lr)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}={value!r}: it should be 0 or more")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f'threshold_mode={threshold_mode!r}: it should be "rel" or "abs"')
        self.factor, self.patience, self.cooldown, self.min_lr = factor, patience, cooldown, min_lr
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.reductions = 0
        # Numbers, so that they are in checkpoints; all but the first change on rank 0 only.
        self._decided = 0  # reductions, with those that no exchange has brought to the workers yet
        self._best: float | None = None
        self._without_improvement = self._cooling = 0
        self._evaluated = False  # whether the trainer's run evaluates, so that the rate can fall

    def __call__(self, num_update: int) -> float:
        """Return the present rate.

        Args:
            num_update: updates of this worker, which are ignored.

        Raises:
            ValueError: the trainer does not know this schedule.
        """
        if not self._evaluated:
            raise ValueError(
                "ReduceOnPlateau follows the metric of a run from its beginning: give it to the optimizer before the "
                "first step of an esync.Trainer(…, run=esync.Run(evaluate=…))"
            )
        return self._rate(self.reductions)

    def check(self, evaluates: str) -> None:
        """Check that a metric is evaluated; `esync.Trainer` calls it before the run.

        Args:
            evaluates: name of the metric; "": none is.

        Raises:
            ValueError: none is.
        """
        if not evaluates:
            raise ValueError(
                "ReduceOnPlateau needs a metric to follow, and nothing is evaluated: esync.Trainer(…, "
                "run=esync.Run(evaluate=…))"
            )
        self._evaluated = True

    def follow(self, result: Result) -> None:
        """Take over the number of reductions that the last exchange has brought."""
        brought = int(result.scalars.get(REDUCTIONS, 0))
        self.reductions = max(self.reductions, brought)
        self._decided = max(self._decided, self.reductions)

    @property
    def scalars(self) -> dict[str, float]:
        """What this worker's next exchange carries."""
        return {REDUCTIONS: float(self._decided)}

    def observe(self, value: float, metric: Metric) -> str:
        """Count an evaluation, on rank 0; return in words that the rate is going to fall, or ""."""
        best, reason = self._best, ""
        if metric.possible(value) and (best is None or self._improves(value, best, metric)):
            self._best, self._without_improvement = value, 0
        else:
            self._without_improvement += 1
        if self._cooling:
            self._cooling -= 1
            self._without_improvement = 0
        before, after = self._rate(self._decided), self._rate(self._decided + 1)
        if self._without_improvement > self.patience and after < before:
            since = f"has not improved on {metric.text(best)}" if best is not None else "has had no value"
            reason = (
                f"{metric.name} {since} in {self._without_improvement} evaluations: the learning rate falls from "
                f"{before:g} to {after:g} with the next exchange"
            )
            self._decided += 1
            self._cooling, self._without_improvement = self.cooldown, 0
        return reason

    def _improves(self, value: float, best: float, metric: Metric) -> bool:
        sign = 1.0 if metric.goal == "max" else -1.0
        required = self.threshold * (abs(best) if self.threshold_mode == "rel" else 1.0)
        return sign * (value - best) > required

    def _rate(self, reductions: int) -> float:
        return float(max(self.base_lr * self.factor**reductions, min(self.min_lr, self.base_lr)))
