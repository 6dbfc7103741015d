"""The base of SSGD, ASGD, SSP, DC-ASGD and Sync-Switch: an exchange after every iteration.

The exchanges carry gradients.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..exchange import WEIGHTS, JobAbortedError, Payload, Result, Source, Specification, values_of
from ..exchange.codecs.quantization import NONE
from .assigned_weights import SCALARS, AssignedWeightsError, Assignment, all_assigned, scalars_of, some_assigned
from .base import Algorithm
from .context import AlgorithmContext


class EveryIteration(Algorithm):
    """Exchanges the mean gradient of every batch.

    Attributes:
        step_seconds: seconds that the last step took, without waiting for the other workers.
    """

    step_seconds = 0.0

    @abstractmethod
    def specification(self) -> Specification:
        """Return what this algorithm asks of the servers."""

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        super().start(context)
        rule = context.rule
        specification = self.specification()
        if self.optimizer_chooses_rule and (specification.rule, specification.options) != (rule.name, rule.options):
            raise ValueError(
                f"the specification of algorithm {self.name!r} has the rule {specification.rule!r} "
                f"{specification.options}, but the optimizer's is {rule.name!r} {rule.options}: ask for it by "
                "_optimizer_specification, or set optimizer_chooses_rule to False"
            )
        self.replica.keep_anchor()
        if self.synchronous or self.switches_synchrony:
            specification = replace(specification, scalars={**specification.scalars, **SCALARS})
        self._begin(self._join(specification))

    def step(self, batch_size: int) -> None:
        """Send the gradient, and take over the new model."""
        self._prepare_gradient(batch_size)
        seconds = self._end_iteration()
        with self.recorder.phase(self.exchange_phase):
            self._contribute()
        result = self._exchange(lambda: self._payload(batch_size))
        self.iterations = 1
        self.step_seconds = seconds + result.transfer
        self._count(result)

    def _exchange(self, make_payload: Callable[[], Payload]) -> Result:
        """Send a payload, which is made while the replica is open, and take over the new model."""
        assert self.exchange is not None
        with self.recorder.phase(self.exchange_phase):
            replica = self.replica
            replica.open()
            payload = make_payload()
            vectors = {name: values for name, values in replica.vectors.items() if name in payload.vectors}
            assignment = replica.assigned_since_exchange(vectors)
            if assignment is not None:
                self._check_assignment(assignment)
                for name, values in vectors.items():
                    self.exchange.assign(values_of(values), name)
            if self.synchronous:
                payload = replace(payload, scalars={**payload.scalars, **scalars_of(assignment)})
            try:
                result = self._start_exchange(payload, replica).wait()
            except JobAbortedError as error:
                if assignment is None:
                    raise
                raise JobAbortedError(f"{error} (this one has assigned {assignment})") from None
            replica.close()
        if self.synchronous:
            self._check_agreement(assignment, result)
        return result

    def _optimizer_specification(self, **terms: Any) -> Specification:
        """Return a specification with the rule of the user's optimizer."""
        rule = self.context.rule
        return Specification(rule=rule.name, options=rule.options, **terms)

    def _check_assignment(self, assignment: Assignment) -> None:
        """Raise an error if the servers cannot adopt assigned weights."""
        if not self.synchronous:
            why = "in which each worker is at another version of the model: use 'sync', or a mode with local iterations"
        elif self.weight_compression != NONE:
            why = f"whose compression ({self.weight_compression}) has values under way: leave the compression out"
        else:
            return
        raise AssignedWeightsError(
            f"the program has assigned {assignment} between two steps; the servers have the weights in mode "
            f"{self.name!r}, {why}"
        )

    def _check_agreement(self, assignment: Assignment | None, result: Result) -> None:
        """Raise an error if some workers of a round have assigned weights, but not all the same."""
        if not some_assigned(result.scalars) or all_assigned(assignment, result.scalars):
            return
        subject = f"the program has assigned {assignment}" if assignment else "another worker has assigned weights"
        raise AssignedWeightsError(
            f"{subject} between two steps, but not all workers have assigned the same: in mode {self.name!r}, assign "
            "weights on all workers, after the same round and to the same values"
        )

    def _payload(self, batch_size: int) -> Payload:
        """Return the payload; the replica must be open."""
        hyper = self.context.hyper()
        return Payload(
            samples=batch_size,
            **hyper.fields,
            **self._with_statistics(self._gradient_vectors(hyper.rescale / batch_size)),
        )

    def _gradient_vectors(self, factor: float) -> dict[str, Source]:
        """Return the vectors of the gradient, times a factor; the replica must be open."""
        return {WEIGHTS: self.replica.gradient(factor)}
