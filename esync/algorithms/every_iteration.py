"""The base of SSGD, ASGD, SSP, DC-ASGD and Sync-Switch: an exchange after every iteration.

The exchanges carry gradients.
"""

from abc import abstractmethod
from typing import Any

from ..exchange import WEIGHTS, Payload, Specification
from .base import Algorithm
from .context import AlgorithmContext


class EveryIteration(Algorithm):
    """Exchanges the mean gradient of every batch.

    Attributes:
        own_seconds: seconds that the last step took, without waiting for the other workers.
    """

    own_seconds = 0.0

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let classes for earlier versions override and call `specification` as `service`."""
        super().__init_subclass__(**keywords)
        for name, other in (("service", "specification"), ("specification", "service")):
            if name in vars(cls) and other not in vars(cls):
                setattr(cls, other, vars(cls)[name])

    @abstractmethod
    def specification(self) -> Specification:
        """Return what this algorithm asks of the servers."""

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        super().start(context)
        rule = context.rule
        asked = self.specification()
        if self.optimizer_chooses_rule and (asked.rule, asked.options) != (rule.name, rule.options):
            raise ValueError(
                f"the specification of algorithm {self.name!r} has the rule {asked.rule!r} {asked.options}, but the "
                f"optimizer's is {rule.name!r} {rule.options}: ask for it by _optimizer_specification, or set "
                "optimizer_chooses_rule to False"
            )
        exchange = self._join(asked)
        self._begin(exchange)

    def step(self, batch_size: int) -> None:
        """Send the gradient, and take over the new model."""
        if self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        self._prepare_gradient(batch_size)
        seconds = self._end_iteration()
        with self.recorder.phase(self.exchange_phase):
            replica = self.replica
            self._contribute()
            replica.open()
            result = self.exchange.start(self._payload(batch_size), replica).wait()
            replica.close()
        self.local_iterations = 1
        self.own_seconds = seconds + result.transfer
        self._count(result)

    def _optimizer_specification(self, **terms: Any) -> Specification:
        """Ask for the steps of the user's optimizer."""
        rule = self.context.rule
        return Specification(rule=rule.name, options=rule.options, **terms)

    _optimizers_service = _optimizer_specification  # its name in earlier versions

    def _payload(self, batch_size: int) -> Payload:
        """Return what is sent; the replica is open."""
        hyper, replica = self.context.hyper(), self.replica
        return Payload(
            samples=batch_size,
            learning_rate=hyper.learning_rate,
            momentum=hyper.momentum,
            weight_decay=hyper.weight_decay,
            gradient_scale=hyper.gradient_scale,
            **self._with_statistics({WEIGHTS: replica.gradient(hyper.rescale / batch_size)}),
        )
