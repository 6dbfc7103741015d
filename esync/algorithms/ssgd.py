"""Synchronous SGD: every iteration waits for the gradients of all workers."""

from dataclasses import replace
from typing import Any

from typing_extensions import override

from ..exchange import WEIGHTS, Payload, Source, Specification
from ..exchange.codecs.quantization import NONE
from ..exchange.protocol.scalars import COMMON, steps_scalar
from .base import Algorithm
from .context import AlgorithmContext, OptimizerPart
from .every_iteration import EveryIteration
from .exchange_options import CompressionOptions
from .rate_scaling import RateScalingOptions
from .registry import register
from .styles import Style


@register("sync", label="SSGD", summary="Sync", style=Style("#E69F00", "--", "s"))
class SSGD(EveryIteration):
    """One step of the optimizer with mean(g), once all workers' gradients are there.

    With SGD that is w ← w − η·mean(g). Batch-norm statistics are averaged, too. With several
    optimizers each step of one of them is an exchange of its gradients; that of the trainer ends
    the round.
    """

    class Options(RateScalingOptions, CompressionOptions):
        """See `RateScalingOptions` and `CompressionOptions`."""

    options: Options
    per_worker_rates = False
    optimizer_chooses_rule = True
    elastic = True
    serverless = True

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._steps: dict[str, int] = {}  # vector → steps of its optimizer, if there are several optimizers
        self._position = 0  # of the newest step in this iteration, see `Payload.position`
        self._taken = 0  # the same, also if the iteration has begun anew since

    @property
    def effective_workers(self) -> float:
        """The number of workers of the run, whether they are there or not.

        All have to agree on the learning rate in every round.
        """
        return float(self.exchange.workers) if self.exchange is not None else 1.0

    @property
    def needs_one_optimizer(self) -> str:
        """See `Algorithm.needs_one_optimizer`."""
        if type(self).before_local_step is not Algorithm.before_local_step:
            return super().needs_one_optimizer
        return "packs one vector of weights with --compression" if self.weight_compression != NONE else ""

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        if len(context.optimizers) > 1:
            self._steps = {vector: 0 for optimizer in context.optimizers for vector in optimizer.vectors}
        super().start(context)
        self._follow_steps()

    def specification(self) -> Specification:
        """Ask for one step of the optimizer with the mean gradient of all workers."""
        optimizers = self.context.optimizers
        rules = {
            vector: optimizer.rule for optimizer in optimizers for vector in optimizer.vectors if vector != WEIGHTS
        }
        multipliers = {vector: pair for optimizer in optimizers for vector, pair in optimizer.vectors.items()}
        return self._optimizer_specification(
            synchronous=True,
            vectors={vector: rule.name for vector, rule in rules.items()},
            vector_options={vector: rule.options for vector, rule in rules.items()},
            multipliers={vector: pair for vector, pair in multipliers.items() if pair != (1, 1)},
            scalars={steps_scalar(vector): COMMON for vector in self._steps},
        )

    def updates_of(self, vector: str) -> int:
        """See `Algorithm.updates_of`."""
        return self._steps.get(vector, self.round)

    def step(self, batch_size: int) -> None:
        """Send the gradient, and take over the new model."""
        super().step(batch_size)
        self._position = self._taken = 0

    def skip(self) -> None:
        """See `Algorithm.skip`; the iteration begins anew, without the steps that the others have taken, too."""
        super().skip()
        self._position = 0

    def step_further(self, further: OptimizerPart, batch_size: int) -> None:
        """Exchange the gradients of a further optimizer's parameters; see `Payload.position`."""
        self._position += 1
        if self._position <= self._taken:
            return
        self._taken = self._position
        with self.device.paused():
            self.result = self._exchange(lambda: self._further_payload(further, batch_size))
        self._follow_steps()  # a replacement may be behind the others in this iteration

    def _further_payload(self, further: OptimizerPart, batch_size: int) -> Payload:
        hyper = further.hyper()
        return Payload(
            self._gradients(further, hyper.rescale / batch_size),
            samples=0,  # the payload that ends the round has them
            **hyper.fields,
            requested=further.vectors.keys(),
            scalars=self._count_step(further),
            position=self._position,
        )

    @override
    def _payload(self, batch_size: int) -> Payload:
        payload, optimizers = super()._payload(batch_size), self.context.optimizers
        return replace(payload, scalars=self._count_step(optimizers[0])) if self._steps else payload

    @override
    def _gradient_vectors(self, factor: float) -> dict[str, Source]:
        optimizers = self.context.optimizers
        return self._gradients(optimizers[0], factor) if optimizers else super()._gradient_vectors(factor)

    def _gradients(self, optimizer: OptimizerPart, factor: float) -> dict[str, Source]:
        return {vector: self.replica.gradient(factor, vector) for vector in optimizer.vectors}

    def _count_step(self, optimizer: OptimizerPart) -> dict[str, float]:
        """Count a step of an optimizer; return all counts, in which the workers must agree."""
        for vector in optimizer.vectors:
            self._steps[vector] += 1
        return {steps_scalar(name): float(count) for name, count in self._steps.items()}

    def _follow_steps(self) -> None:
        """Set the counts of steps to those of the others."""
        scalars = self.result.scalars
        self._steps = {name: int(scalars.get(steps_scalar(name), count)) for name, count in self._steps.items()}
