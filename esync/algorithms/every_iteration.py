"""The base of SSGD, ASGD, SSP, DC-ASGD and Sync-Switch: gradients are exchanged after every iteration."""

from abc import abstractmethod
from typing import Any

from ..exchange import WEIGHTS, Payload, Specification
from .base import Algorithm
from .context import AlgorithmContext


class EveryIteration(Algorithm):
    """Exchange the mean gradient of every batch.

    Attributes:
        own_seconds: that the last step took, without waiting for the other workers.
    """

    own_seconds = 0.0

    @abstractmethod
    def service(self) -> Specification:
        """What is asked of the servers."""

    def start(self, context: AlgorithmContext) -> None:
        """Connect, and begin with the common model."""
        super().start(context)
        rule = context.rule
        service = self.service()
        if self.optimizer_chooses_rule and (service.rule, service.options) != (rule.name, rule.options):
            raise ValueError(
                f"the service of algorithm {self.name!r} has the rule {service.rule!r} {service.options}, but the "
                f"optimizer's is {rule.name!r} {rule.options}: ask for it by _optimizers_service, or set "
                "optimizer_chooses_rule to False"
            )
        exchange = self._join(service)
        self._begin(exchange)

    def step(self, batch_size: int) -> None:
        """Send the gradient, take the new model."""
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

    def _optimizers_service(self, **terms: Any) -> Specification:
        """Ask for the steps of the user's optimizer."""
        rule = self.context.rule
        return Specification(rule=rule.name, options=rule.options, **terms)

    def _payload(self, batch_size: int) -> Payload:
        """What is sent; the replica is open."""
        hyper, replica = self.context.hyper(), self.replica
        return Payload(
            samples=batch_size,
            learning_rate=hyper.learning_rate,
            momentum=hyper.momentum,
            weight_decay=hyper.weight_decay,
            gradient_scale=hyper.gradient_scale,
            **self._with_statistics({WEIGHTS: replica.gradient(hyper.rescale / batch_size)}),
        )
